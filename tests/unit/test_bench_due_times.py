"""When a room was due by the rule, and how late it was written."""

from heartbeat_stream.bench.due_times import Latencies, Rule, Write, latencies

RULE = Rule(window_ms=5_000, cooldown_ms=30_000)
#: Until the end of all these timelines nothing is due that is not written.
END = 100_000


def test_due_by_the_cooldown() -> None:
    # Written at 10 s with what came at 1 s; the next came at 2 s and is due when the cooldown ends.
    arrivals = {7: [1_000, 2_000, 39_000]}
    writes = {7: [Write(1_000, 10_000, 9_990.0), Write(39_000, 40_100, 40_080.0)]}
    found = latencies(RULE, arrivals, writes, END)
    assert found == Latencies(values=[80.0], first=1)


def test_due_by_the_window() -> None:
    # The first new heartbeat comes after the cooldown, and waits for its window only.
    arrivals = {7: [1_000, 50_000]}
    writes = {7: [Write(1_000, 10_000, 9_990.0), Write(50_000, 55_300, 55_250.0)]}
    assert latencies(RULE, arrivals, writes, END) == Latencies(values=[250.0], first=1, by_window=1)


def test_the_first_heartbeat_that_is_newer_than_the_row_decides_not_the_one_that_is_written() -> (
    None
):
    # 50 s starts the window; what is written in the end is the one of 54 s.
    arrivals = {7: [1_000, 50_000, 54_000]}
    writes = {7: [Write(1_000, 10_000, 9_990.0), Write(54_000, 55_100, 55_040.0)]}
    assert latencies(RULE, arrivals, writes, END).values == [40.0]


def test_a_write_before_its_time_is_negative() -> None:
    arrivals = {7: [1_000, 2_000]}
    writes = {7: [Write(1_000, 10_000, 9_990.0), Write(2_000, 39_900, 39_800.0)]}
    assert latencies(RULE, arrivals, writes, END).values == [-200.0]


def test_a_room_that_was_due_at_the_end_and_not_written_is_no_survivor() -> None:
    due_at_40_s = {7: [1_000, 2_000]}
    written_once = {7: [Write(1_000, 10_000, 9_990.0)]}
    assert latencies(RULE, due_at_40_s, written_once, 39_999) == Latencies(first=1)
    assert latencies(RULE, due_at_40_s, written_once, 41_000) == Latencies(first=1, missing=[1_000])


def test_a_room_that_was_never_written_is_missing_after_its_window() -> None:
    assert latencies(RULE, {7: [1_000]}, {}, 5_999) == Latencies()
    assert latencies(RULE, {7: [1_000]}, {}, 7_500) == Latencies(missing=[1_500])


def test_a_room_with_nothing_new_is_due_never() -> None:
    arrivals, writes = {7: [1_000]}, {7: [Write(1_000, 10_000, 9_990.0)]}
    assert latencies(RULE, arrivals, writes, 10**9) == Latencies(first=1)
