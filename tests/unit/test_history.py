"""The ring of the last minutes, with a clock that is moved by hand."""

from __future__ import annotations

from heartbeat_stream.history import INTERVAL_MS, SAMPLES_MAX, Figures, History, Sample, add_up

START = 1_700_000_000_000 // INTERVAL_MS * INTERVAL_MS


class Watched:
    def __init__(self) -> None:
        self.now = START + 1_234
        self.history = History(lambda: self.now)

    def look(self, after_ms: int, records: int, rows: int = 0, pending: int = 0) -> None:
        self.now += after_ms
        self.history.look(Figures(records, rows, 0, pending, 0, 0))


def test_a_sample_is_what_was_counted_in_its_interval() -> None:
    watched = Watched()
    watched.look(0, 1_000)
    watched.look(500, 1_100)
    assert watched.history.samples() == []
    watched.look(INTERVAL_MS, 1_700, rows=30, pending=9)
    watched.look(500, 1_800)
    watched.look(INTERVAL_MS, 2_000, rows=40, pending=4)
    assert watched.history.samples() == [
        Sample(START, 700, 30, 0, 9, 0, 0),
        Sample(START + INTERVAL_MS, 300, 10, 0, 4, 0, 0),
    ]


def test_rows_that_were_refused_are_counted_in_their_interval() -> None:
    watched = Watched()
    for refused in (3, 5):
        watched.history.look(Figures(0, 0, 0, 0, 0, 0, refused))
        watched.now += INTERVAL_MS
    (sample,) = watched.history.samples()
    assert sample.refused == 2


def test_after_a_pause_its_counts_are_spread() -> None:
    watched = Watched()
    watched.look(0, 0)
    watched.look(4 * INTERVAL_MS, 1_000)
    samples = watched.history.samples()
    assert [one.at_ms for one in samples] == [START + n * INTERVAL_MS for n in range(4)]
    assert [one.records for one in samples] == [250] * 4


def test_the_ring_is_bounded() -> None:
    watched = Watched()
    for count in range(SAMPLES_MAX + 50):
        watched.look(INTERVAL_MS, count)
    samples = watched.history.samples()
    assert len(samples) == SAMPLES_MAX
    assert samples[-1].at_ms == (watched.now // INTERVAL_MS - 1) * INTERVAL_MS
    watched.look(1_000_000 * INTERVAL_MS, 0)
    samples = watched.history.samples()
    assert len(samples) == SAMPLES_MAX
    assert samples[-1].at_ms == (watched.now // INTERVAL_MS - 1) * INTERVAL_MS


def test_workers_are_added_up_interval_by_interval() -> None:
    one = [Sample(START, 10, 1, 2, 3, 4, 5), Sample(START + INTERVAL_MS, 20, 0, 0, 1, 1, 1)]
    other = [Sample(START + INTERVAL_MS, 5, 5, 5, 5, 5, 5)]
    assert add_up([one, other]) == [
        Sample(START, 10, 1, 2, 3, 4, 5),
        Sample(START + INTERVAL_MS, 25, 5, 5, 6, 6, 6),
    ]
    assert one[1].records == 20, "what was added up stays as it is"
    assert add_up([]) == []
