"""The lag, with the times and positions of a consumer written down by hand."""

import pytest

from heartbeat_stream.lag import Fetched, Lag, LagMeter, Place

NOW = 1_700_000_000_000


def fetched(
    position: int,
    end: int | None,
    *,
    age_s: float = 0.0,
    first: Place | None = None,
    last: int | None = None,
) -> Fetched:
    return Fetched(position, end, age_s, first, last)


class Partition:
    """A meter of one partition, and a clock that is moved by hand."""

    def __init__(self) -> None:
        self.meter: LagMeter[int] = LagMeter()
        self.now = NOW

    def look(self, one: Fetched, handled: Place | None = None) -> Lag | None:
        self.meter.look({0: one}, {0: handled} if handled is not None else {}, self.now)
        return self.meter.lags(self.now).get(0)


def test_nothing_is_said_before_the_end_is_known() -> None:
    assert Partition().look(fetched(0, None)) is None


def test_an_empty_partition_has_no_lag() -> None:
    assert Partition().look(fetched(0, 0)) == Lag(0, 0.0)


def test_what_was_fetched_and_not_worked_on_counts_from_its_first_record() -> None:
    first = Place(100, NOW - 5_000)
    assert Partition().look(fetched(160, 200, first=first, last=159)) == Lag(100, 5.0)


def test_what_was_worked_on_does_not_count() -> None:
    one = fetched(160, 200, first=Place(100, NOW - 9_000), last=159)
    assert Partition().look(one, Place(139, NOW - 4_000)) == Lag(60, 4.0)


def test_it_is_clamped_at_the_start_of_the_log() -> None:
    # The group had committed 10, and retention has taken everything before 1,000: the position is
    # there by now, and nothing of it is fetched yet.
    lag = Partition().look(fetched(1_000, 1_200))
    assert lag is not None
    assert lag.records == 200


def test_it_is_clamped_at_zero() -> None:
    # A topic that was made anew ends before the position.
    partition = Partition()
    assert partition.look(fetched(500, 20, last=499), Place(499, NOW)) == Lag(0, 0.0)
    # A record from the future, by its own word.
    ahead = fetched(160, 200, first=Place(100, NOW + 60_000), last=159)
    assert partition.look(ahead, Place(110, NOW + 60_000)) == Lag(89, 0.0)


def test_markers_behind_the_last_record_are_no_lag() -> None:
    # The last record is 198, behind it stands the marker of a transaction.
    one = fetched(200, 200, first=Place(0, NOW), last=198)
    assert Partition().look(one, Place(198, NOW)) == Lag(0, 0.0)


def test_seconds_count_from_when_the_end_was_where_the_work_is() -> None:
    partition = Partition()
    done = Place(99, NOW - 3_600_000)  # an hour ago, says a device whose clock is wrong
    assert partition.look(fetched(100, 100, last=99), done) == Lag(0, 0.0)
    partition.now += 10_000  # all is worked on, and known to be all: nothing new has come
    assert partition.look(fetched(100, 100, last=99), done) == Lag(0, 0.0)
    partition.now += 2_000
    assert partition.look(fetched(120, 120, last=119), done) == Lag(20, 2.0)
    partition.now += 5_000
    assert partition.look(fetched(150, 150, last=149), done) == Lag(50, 7.0)
    # The twenty that came first are done now. The next one came after they were all there was.
    assert partition.look(fetched(150, 150, last=149), Place(119, NOW)) == Lag(30, 5.0)
    assert partition.look(fetched(150, 150, last=149), Place(149, NOW)) == Lag(0, 0.0)


def test_an_end_that_was_told_long_ago_does_not_count_as_told_now() -> None:
    partition = Partition()
    partition.look(fetched(100, 100, last=99), Place(99, NOW))
    # Fetching has been paused for a minute: who knows what has come since.
    partition.now += 60_000
    partition.look(fetched(100, 100, age_s=60.0, last=99), Place(99, NOW))
    partition.now += 500
    assert partition.look(fetched(300, 300, last=299), Place(99, NOW)) == Lag(200, 60.5)


def test_a_backlog_is_as_old_as_its_records_say() -> None:
    # A worker starts behind, and works its way up.
    partition = Partition()
    first = Place(1_000, NOW - 7_200_000)
    one = fetched(5_000, 100_000, first=first, last=4_999)
    assert partition.look(one) == Lag(99_000, 7_200.0)
    lag = partition.look(one, Place(4_999, NOW - 7_000_000))
    assert lag == Lag(95_000, 7_000.0)
    partition.now += 10_000
    one = fetched(100_000, 100_500, first=first, last=99_999)
    # All that was there at the first look is done: what is left came after it.
    assert partition.look(one, Place(99_999, NOW - 9)) == Lag(500, 10.0)


def test_partitions_that_are_gone_are_forgotten() -> None:
    meter: LagMeter[str] = LagMeter()
    meter.look({"a": fetched(0, 10), "b": fetched(0, 20)}, {}, NOW)
    assert {name: lag.records for name, lag in meter.lags(NOW).items()} == {"a": 10, "b": 20}
    meter.look({"b": fetched(0, 20)}, {}, NOW)
    assert set(meter.lags(NOW)) == {"b"}


def test_hours_behind_are_told_within_a_percent_and_from_bounded_memory() -> None:
    partition = Partition()
    handled = Place(0, NOW)
    partition.look(fetched(1, 1, last=0), handled)
    for _ in range(8 * 3_600):  # the end grows every second, and the work stands still
        partition.now += 1_000
        end = (partition.now - NOW) // 1_000 + 1
        lag = partition.look(fetched(end, end, last=end - 1), handled)
    assert lag == Lag(8 * 3_600, 8 * 3_600.0)
    assert len(partition.meter._partitions[0]._marks) <= 256
    # Half of it is done: four hours are left.
    lag = partition.look(fetched(end, end, last=end - 1), Place(4 * 3_600, NOW))
    assert lag is not None
    assert lag.records == 4 * 3_600
    assert lag.seconds == pytest.approx(4 * 3_600, rel=0.02)
