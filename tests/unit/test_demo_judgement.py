"""What the demo finds right and wrong, and what it measures the saving against."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from aiokafka.structs import ConsumerRecord

from heartbeat_stream.core.heartbeat import Heartbeat, room_key
from heartbeat_stream.core.reasons import Reason
from heartbeat_stream.local.demo.baseline import Baseline
from heartbeat_stream.local.demo.comparison import compare, sample
from heartbeat_stream.local.demo.figures import Figures
from heartbeat_stream.local.demo.judging import Snapshot, judge
from heartbeat_stream.local.fleet import FleetCounts
from heartbeat_stream.local.simulate import SimulationResult
from heartbeat_stream.settings import Settings

NOW = 1_796_070_000_000


def heartbeat(room: str, ts_ms: int, device: str = "d") -> Heartbeat:
    return Heartbeat(7, room, ts_ms, device, 1)


def by_key(*heartbeats: Heartbeat) -> dict[bytes, Heartbeat]:
    return {room_key(one.hotel_id, one.room_id): one for one in heartbeats}


# -- comparing -------------------------------------------------------------------------------------


def test_rows_are_equal_older_or_missing() -> None:
    newest = by_key(heartbeat("1", 10), heartbeat("2", 10), heartbeat("3", 10))
    found = compare(by_key(heartbeat("1", 10), heartbeat("2", 9)), newest)
    assert (found.equal, found.behind, found.wrong, found.rooms) == (1, 2, [], 3)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (heartbeat("大会议室", 11), "7:大会议室 is (d, 11, 1), not (d, 10, 1)"),
        (heartbeat("大会议室", 10, "other"), "7:大会议室 is (other, 10, 1)"),
        (heartbeat("nobody's", 10), "7:nobody's, which has sent nothing"),
    ],
)
def test_a_row_that_can_be_right_in_no_case_is_wrong(row: Heartbeat, said: str) -> None:
    found = compare(by_key(row), by_key(heartbeat("大会议室", 10)))
    assert said in found.wrong[0]


def test_the_sample_has_rooms_of_both_kinds_from_everywhere() -> None:
    rows = by_key(
        *(heartbeat(str(number), 1) for number in range(100, 200)),
        *(heartbeat(f"会议室{number}", 1) for number in range(10)),
    )
    shown = [row.room_id for row in sample(rows, 6)]
    assert shown[:3] == ["会议室0", "会议室3", "会议室6"]
    assert shown[3:] == ["100", "133", "166"]
    assert len(sample(by_key(heartbeat("1", 1)), 6)) == 1
    assert sample({}, 6) == []


# -- judging ---------------------------------------------------------------------------------------

SENT = SimulationResult(
    oracle=by_key(heartbeat("1", 10), heartbeat("2", 10)),
    counts=FleetCounts(newer=7, duplicates=1, late=1, broken=Counter({Reason.NOT_JSON: 1})),
    seconds=1.0,
)
RIGHT = Figures(
    records=10,
    stale=2,
    merged=7,
    rows_written=2,
    dead_letters={"not-json": 1},
    pending=1,
    cooling=1,
)
ROWS = by_key(heartbeat("1", 10), heartbeat("2", 9))


def problems(
    figures: Figures, rows: dict[bytes, Heartbeat] = ROWS, before: Figures | None = None
) -> list[str]:
    return judge(Snapshot(rows, before or figures, figures), SENT)[1]


def test_a_row_that_is_older_because_its_room_is_pending_is_right() -> None:
    assert problems(RIGHT) == []


def test_a_row_that_is_older_for_no_reason_is_wrong() -> None:
    (problem,) = problems(replace(RIGHT, pending=0, cooling=0))
    assert problem.startswith("1 rooms have a heartbeat that is newer than their row, but 0 are")


def test_a_room_that_is_pending_for_no_reason_is_wrong() -> None:
    (problem,) = problems(RIGHT, by_key(heartbeat("1", 10), heartbeat("2", 10)))
    assert problem.startswith("0 rooms have a heartbeat that is newer than their row, but 1 are")


def test_what_was_written_while_the_table_was_read_is_right() -> None:
    after = replace(RIGHT, pending=0, cooling=0, rows_written=3)
    assert problems(after, before=RIGHT) == []
    assert not Snapshot(ROWS, RIGHT, after).quiet


def test_a_row_that_the_database_has_refused_may_be_older() -> None:
    refused = replace(RIGHT, pending=0, cooling=0, dead_letters={"not-json": 1, "row-refused": 1})
    (problem,) = problems(refused)
    assert "dead letters" in problem, "the fleet sends nothing that a database refuses"


@pytest.mark.parametrize(
    "miscounted",
    [
        {"records": 11},
        {"records": 9},
        {"dead_letters": {}},
        {"dead_letters": {"not-utf8": 1}},
    ],
)
def test_what_the_worker_counts_must_be_what_was_sent(miscounted: dict[str, object]) -> None:
    (problem,) = problems(replace(RIGHT, **miscounted))  # type: ignore[arg-type]
    assert problem.startswith("10 heartbeats were sent, 1 of them broken, but the worker has")


def test_a_wrong_row_is_a_problem() -> None:
    (problem,) = problems(RIGHT, by_key(heartbeat("1", 11), heartbeat("2", 9)))
    assert problem == "the row of 7:1 is (d, 11, 1), not (d, 10, 1)"


# -- the baseline ----------------------------------------------------------------------------------


def record(value: bytes | None, at_ms: int, key: bytes | None = None) -> ConsumerRecord:
    size = len(value or b"")
    return ConsumerRecord("t", 0, 0, at_ms, 0, key, value, None, -1, size, ())


def sent(room: str, at_ms: int, key: bytes | None = None) -> ConsumerRecord:
    return record(b'{"hotel_id":7,"room_id":"%s","ts_ms":%d}' % (room.encode(), NOW), at_ms, key)


def writes(*records: ConsumerRecord, settings: Settings | None = None) -> int:
    baseline = Baseline(settings or Settings())
    for one in records:
        baseline.take([one], NOW)
    assert baseline.records == len(records)
    return baseline.writes


def test_a_room_counts_once_in_each_window_of_5_s_from_the_first_record_on() -> None:
    first = NOW + 4_321
    assert writes(sent("1", first), sent("1", first + 4_999)) == 1
    assert writes(sent("1", first), sent("1", first + 5_000)) == 2
    assert writes(sent("1", first), sent("1", first + 60_000), sent("1", first + 61_000)) == 2
    assert writes(sent("1", first), sent("2", first), sent("1", first)) == 2


def test_partitions_may_be_read_in_any_order() -> None:
    later, earlier = sent("1", NOW + 9_000), sent("1", NOW + 7_000)
    assert writes(sent("2", NOW), later, earlier, later) == 2
    assert writes(later, sent("1", NOW + 8_990)) == 1, "before the first that was read"


def test_only_accepted_heartbeats_count() -> None:
    assert writes(record(None, NOW), record(b"{}", NOW), record(b"\xff", NOW)) == 0
    too_new = b'{"hotel_id":7,"room_id":"1","ts_ms":%d}' % (NOW + 300_001)
    assert writes(record(too_new, NOW)) == 0


def test_with_a_keyed_source_the_key_must_be_right() -> None:
    keyed = Settings(source_keyed=True)
    records = sent("1", NOW, b"7:1"), sent("2", NOW, b"07:2"), sent("3", NOW)
    assert writes(*records, settings=keyed) == 1
    assert writes(*records) == 3
