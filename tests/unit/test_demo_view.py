"""What the demo shows: figures, rates, live view and summary, and how a terminal is drawn on."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterable
from dataclasses import replace

import pytest

from heartbeat_stream.core.heartbeat import Heartbeat
from heartbeat_stream.local.demo import figures
from heartbeat_stream.local.demo.comparison import Comparison
from heartbeat_stream.local.demo.figures import Figures, Rates
from heartbeat_stream.local.demo.screen import Line, Screen, Span, line, text_width
from heartbeat_stream.local.demo.summary import Outcome, summary
from heartbeat_stream.local.demo.view import Scene, frame, log_line, saving
from heartbeat_stream.metrics.catalogue import METRICS

EXPOSITION = """\
# HELP heartbeat_worker_info Which worker this is.
# TYPE heartbeat_worker_info gauge
heartbeat_worker_info{app_id="a",directory="/tmp/x/worker-0",version="1"} 1.0
# HELP heartbeat_records_total Records read from the source topic.
# TYPE heartbeat_records_total counter
heartbeat_records_total 100.0
# TYPE heartbeat_tombstones_total counter
heartbeat_tombstones_total 1.0
# TYPE heartbeat_combined_total counter
heartbeat_combined_total 20.0
# TYPE heartbeat_merged_total counter
heartbeat_merged_total 60.0
# TYPE heartbeat_stale_total counter
heartbeat_stale_total 10.0
# TYPE heartbeat_rows_written_total counter
heartbeat_rows_written_total 7.0
# TYPE heartbeat_dead_letters_total counter
heartbeat_dead_letters_total{reason="not-json"} 3.0
heartbeat_dead_letters_total{reason="bad-ts-ms"} 4.0
heartbeat_dead_letters_total{reason="row-refused"} 5.0
heartbeat_dead_letters_total{reason="not-utf8"} 0.0
# TYPE heartbeat_rooms_pending gauge
heartbeat_rooms_pending 50.0
# TYPE heartbeat_rooms_cooling gauge
heartbeat_rooms_cooling 30.0
# TYPE heartbeat_rooms_waiting gauge
heartbeat_rooms_waiting 12.0
# TYPE heartbeat_rooms_in_flight gauge
heartbeat_rooms_in_flight 3.0
"""

FIGURES = Figures(
    records=90_000,
    combined=20_000,
    stale=12_000,
    merged=57_550,
    rows_written=4_000,
    dead_letters={"not-json": 250, "bad-ts-ms": 100, "not-utf8": 100},
    pending=2_000,
    cooling=1_900,
    waiting=100,
)
SCENE = Scene(
    phase="12 of 45 s",
    fleet="20 x 100 rooms",
    figures=FIGURES,
    records_per_s=2_003.4,
    rows_per_s=195.0,
    rows=1_990,
    unread=12,
    baseline=18_000,
    window_ms=5_000,
    cooldown_ms=30_000,
    url="http://127.0.0.1:6066",
    room="1001:101",
)
OUTCOME = Outcome(
    seconds=45.0,
    fleet="20 x 100 rooms",
    figures=FIGURES,
    baseline=18_000,
    rooms=2_000,
    comparison=Comparison(equal=0, behind=2_000),
    no_lag_after_s=1.25,
    sample=[
        Heartbeat(1001, "大会议室", 1_796_070_000_000, "dev-1", 1),
        Heartbeat(7, "101", 1_796_070_000_001),
    ],
    window_ms=5_000,
)


class Terminal(io.StringIO):
    """A terminal of a size, which shows what a real one would; only what the screen uses of it."""

    def __init__(self, columns: int = 80, rows: int = 24) -> None:
        super().__init__()
        self.columns, self.rows = columns, rows
        self.cells: list[str] = [""]
        self.row = self.column = 0

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        for part in re.findall(r"\x1b\[\d*[A-Za-z]|.|\n", text):
            self._put(part)
        return super().write(text)

    def _put(self, part: str) -> None:
        if part == "\n":
            self.row, self.column = self.row + 1, 0
            self.cells += [""] * (self.row + 1 - len(self.cells))
        elif part == "\r":
            self.column = 0
        elif part == "\x1b[K":
            self.cells[self.row] = self.cells[self.row][: self.column]
        elif part == "\x1b[J":
            self._put("\x1b[K")
            del self.cells[self.row + 1 :]
        elif part.endswith("A"):
            self.row -= int(part[2:-1])
            assert self.row >= 0, "above the first line"
        elif not part.startswith("\x1b"):
            kept = self.cells[self.row].ljust(self.column)
            self.cells[self.row] = kept[: self.column] + part + kept[self.column + 1 :]
            self.column += 1

    @property
    def shown(self) -> list[str]:
        return "\n".join(self.cells).rstrip("\n").split("\n")


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    terminal = Terminal()
    monkeypatch.setattr(
        Screen, "_size", lambda self: os.terminal_size((terminal.columns, terminal.rows))
    )
    return terminal


def screen_on(out: io.StringIO, **environ: str) -> Screen:
    return Screen(out, {"TERM": "xterm", **environ})


def plain(lines: Iterable[Line]) -> list[str]:
    return ["".join(span.text for span in one).rstrip() for one in lines]


# -- figures ---------------------------------------------------------------------------------------


def test_figures_are_read_from_the_exposition() -> None:
    read = Figures.read(EXPOSITION)
    assert read.directory == "/tmp/x/worker-0"
    assert (read.records, read.merged, read.rows_written) == (100, 60, 7)
    assert read.dead_letters.keys() == {"not-json", "bad-ts-ms", "row-refused"}
    assert (read.broken, read.refused) == (7, 5), "a refused row is no record of the source"
    assert read.dropped == 1 + 20 + 10 + 7
    assert read.on_the_way == 100 - 38 - 60


def test_what_is_missing_counts_as_nothing() -> None:
    assert Figures.read("") == Figures()


def test_the_worker_has_every_metric_that_is_read() -> None:
    """One that it does not have would count as 0 for ever."""
    names = {*figures._FIELDS, figures._DEAD_LETTERS, figures._INFO}
    assert names <= METRICS.keys()
    assert METRICS[figures._DEAD_LETTERS].labels == ("reason",)


def test_rates_are_those_of_the_last_seconds() -> None:
    rates = Rates()
    assert rates.per_second(lambda seen: seen.records) == 0
    for second in range(20):
        rates.note(second, Figures(records=1_000 * min(second, 12)))
    assert rates.per_second(lambda seen: seen.records) == 0, "it stopped 7 s ago"
    rates.note(20, Figures(records=13_000))
    assert rates.per_second(lambda seen: seen.records) == pytest.approx(1_000 / 5)


# -- the live view and the line --------------------------------------------------------------------


def test_the_frame_shows_every_figure() -> None:
    text = "\n".join(plain(frame(SCENE)))
    for shown in (
        "12 of 45 s",
        "heartbeats in        90,000  2,003 a second, 12 unread",
        "rows written          4,000  195 a second, 1,990 rooms in the table",
        "saving               77.8 %  instead of 18,000 rows",
        "merged               57,550",
        "dropped              32,450",
        "  stale              12,000",
        "  combined           20,000",
        "  dead letters          450  not-json 250, bad-ts-ms 100, not-utf8 100",
        "rooms pending         2,000",
        "  in cooldown         1,900  were written less than 30 s ago",
        "  in window             100  wait 5 s",
        "http://127.0.0.1:6066/table/latest/1001:101/",
    ):
        assert shown in text


def test_the_frame_fits_a_terminal_of_80_by_24() -> None:
    lines = plain(frame(SCENE))
    assert len(lines) <= 23
    assert max(map(text_width, lines)) <= 79


def test_the_line_for_a_log_has_the_same_figures() -> None:
    (text,) = plain([log_line(SCENE)])
    for shown in ("in 90,000 (2,003/s)", "merged 57,550", "in cooldown 1,900", "saving 77.8 %"):
        assert shown in text


@pytest.mark.parametrize(
    ("rows", "baseline", "said"),
    [
        (0, 0, "-"),
        (0, 10, "-"),
        (10, 0, "-"),
        (1, 6, "83.3 %"),
        (6, 6, "0.0 %"),
        (9, 6, "-50.0 %"),
    ],
)
def test_saving_is_told_as_it_is(rows: int, baseline: int, said: str) -> None:
    assert saving(rows, baseline) == said


# -- the summary -----------------------------------------------------------------------------------


def test_the_summary_adds_up_and_explains_the_saving() -> None:
    text = "\n".join(plain(summary(OUTCOME, 100)))
    for shown in (
        "heartbeats in        90,000  in 45.0 s, 2,000 a second; lag 0 within 1.2 s of the last",
        "rows written          4,000  of 2,000 rooms; 14.4 merged heartbeats for each",
        "saving               77.8 %  4,000 rows instead of 18,000",
        "66.7 %  once the 2,000 pending rooms are written, too",
        "  older               2,000  pending by rule: 1,900 in their cooldown, 100 in their ",
        "  wrong                   0",
    ):
        assert shown in text


def test_the_summary_has_rows_with_their_columns_one_below_the_other() -> None:
    *_, header, named, numbered = plain(summary(OUTCOME, 100))
    assert header.split() == ["hotel_id", "room_id", "device_id", "ts_ms", "status"]
    assert named.split() == ["1001", "大会议室", "dev-1", "1796070000000", "1"]
    assert numbered.split() == ["7", "101", "1796070000001"], "NULL is shown as nothing"
    ends = [text_width(row[: row.index("17960700") + 13]) for row in (named, numbered)]
    assert ends == [header.index("ts_ms") + 5] * 2


@pytest.mark.parametrize("columns", range(40, 120))
def test_the_notes_of_the_summary_keep_to_the_width(columns: int) -> None:
    *lines, _, _, _, _ = plain(summary(OUTCOME, columns))
    assert max(map(text_width, lines)) < columns
    for together in ("not-json 250", "bad-ts-ms 100", "not-utf8 100"):
        assert any(together in one for one in lines), "a reason and its count stay on one line"


def test_what_could_not_be_compared_is_said() -> None:
    text = "\n".join(plain(summary(replace(OUTCOME, comparison=None), 100)))
    assert "not everything that was sent had been read yet" in text
    assert "wrong" not in text


def test_nothing_sent_is_no_error() -> None:
    nothing = replace(
        OUTCOME, seconds=0.0, figures=Figures(), baseline=0, comparison=Comparison(), sample=[]
    )
    assert "heartbeats in             0" in "\n".join(plain(summary(nothing, 80)))


# -- the terminal ----------------------------------------------------------------------------------


def test_a_frame_is_drawn_over_the_one_before(terminal: Terminal) -> None:
    screen = screen_on(terminal)
    screen.say(line("first"))
    screen.draw([line("a long line"), line("two"), line("three")])
    screen.draw([line("short"), line("2")])
    assert terminal.shown == ["first", "short", "2"]


def test_what_is_said_takes_the_frame_away(terminal: Terminal) -> None:
    screen = screen_on(terminal)
    screen.draw([line("one"), line("two")])
    screen.say(line("said"))
    screen.draw([line("three")])
    assert terminal.shown == ["said", "three"]


def test_an_echoed_interrupt_does_not_stay(terminal: Terminal) -> None:
    screen = screen_on(terminal)
    screen.draw([line("one")])
    terminal.write("^C")
    screen.draw([line("two")])
    assert terminal.shown == ["two"]


def test_a_frame_is_cut_to_the_terminal(terminal: Terminal) -> None:
    terminal.columns, terminal.rows = 7, 3
    screen_on(terminal).draw([line("123456789"), line("会议室会议室"), line("no room")])
    assert terminal.shown == ["123456", "会议室"], "a line that wraps would be drawn as two"


def test_colours_follow_the_wishes_of_the_user(terminal: Terminal) -> None:
    def drawn(**environ: str) -> str:
        terminal.truncate(0)
        terminal.seek(0)
        screen_on(terminal, **environ).draw([line(Span("text", "bold"))])
        return terminal.getvalue()

    assert "\x1b[1mtext\x1b[0m" in drawn()
    assert "\x1b[1m" not in drawn(NO_COLOR="1")
    assert "\x1b[1mtext" in drawn(NO_COLOR=""), "an empty NO_COLOR counts as not set"


@pytest.mark.parametrize("term", ["dumb", None])
def test_a_terminal_that_cannot_is_not_drawn_on(term: str | None) -> None:
    screen = Screen(Terminal(), {"TERM": term} if term else {})
    assert not screen.live


def test_elsewhere_than_on_a_terminal_there_are_plain_lines() -> None:
    out = io.StringIO()
    screen = screen_on(out)
    screen.say(line(Span("one", "bold"), "two"))
    assert not screen.live
    assert out.getvalue() == "onetwo\n"
