"""Several workers made into one picture, and the words for it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from heartbeat_stream.history import INTERVAL_MS, Sample
from heartbeat_stream.recent_errors import ErrorLine
from heartbeat_stream.web.overview import overview_of
from heartbeat_stream.web.summary import PartitionLag, Rooms, Summary
from heartbeat_stream.web.verdict import Level, Verdict, judge

NOW = 1_700_000_000_000 // INTERVAL_MS * INTERVAL_MS
MINUTE = 60_000 // INTERVAL_MS


def samples(count: int, records: float = 500.0, rows: float = 25.0, due: int = 0) -> list[Sample]:
    return [
        Sample(NOW - number * INTERVAL_MS, records, rows, 0, 100, due, 90)
        for number in range(count, 0, -1)
    ]


def worker(number: int = 0, **changes: Any) -> Summary:
    """A worker that is well, with two of four partitions."""
    made = Summary(
        url=f"http://worker-{number}:6066",
        app_id="app",
        version="1",
        now_ms=NOW + 1_500,
        ready=True,
        live=True,
        waiting_for=None,
        recovered=True,
        partitions=[2 * number, 2 * number + 1],
        partitions_total=4,
        database_error=None,
        checkpoint_error=None,
        session_lapsed=False,
        checkpoint_age_s=1.0,
        checkpoint_interval_s=5.0,
        fetch_age_s=0.1,
        rooms=Rooms(100, 90, 5, 3, 2, 150),
        records=10_000,
        rows=500,
        lag=[PartitionLag("heartbeat", number, 7, 0.5)],
        dead_letters={"not-json": 1},
        errors=[],
        history=samples(20),
    )
    return msgspec.structs.replace(made, **changes)


def verdict(*workers: Summary, unreachable: dict[str, str] | None = None) -> Verdict:
    seen = overview_of(workers, unreachable or {})
    return judge(workers, unreachable or {}, seen.history)


def test_all_is_well() -> None:
    found = verdict(worker(0), worker(1))
    assert found.level is Level.WELL
    assert found.points == []
    saved = "95.0\N{NO-BREAK SPACE}% of the writes saved"
    assert found.text == f"All is well. 2 workers, 200 heartbeats a second, {saved}."


def test_nothing_comes_in() -> None:
    text = verdict(
        *(worker(number, history=samples(20, records=0, rows=0)) for number in (0, 1))
    ).text
    assert "no heartbeat has come in for 60 s" in text
    fresh = verdict(worker(0, history=[]), worker(1, history=[]))
    assert fresh.text == "All is well. 2 workers."


@pytest.mark.parametrize(
    ("changes", "level", "words"),
    [
        ({"live": False}, Level.TROUBLE, "restart it"),
        ({"ready": False, "waiting_for": "the brokers"}, Level.WATCH, "waits for the brokers"),
        ({"ready": False, "recovered": False}, Level.WATCH, "recovers its partitions"),
        ({"ready": False}, Level.WATCH, "is not ready"),
        ({"database_error": "connection: refused"}, Level.TROUBLE, "database takes no rows"),
        ({"session_lapsed": True}, Level.TROUBLE, "coordinator"),
        ({"fetch_age_s": 61.0}, Level.TROUBLE, "No broker has answered"),
        ({"checkpoint_error": "KafkaError: x"}, Level.TROUBLE, "cannot make its state durable"),
        ({"lag": [PartitionLag("t", 0, 9, 7_300.0)]}, Level.WATCH, "is 2 h behind"),
        ({"lag": [PartitionLag("t", 0, 9, 600.0)]}, Level.WATCH, "is 10 min behind"),
        ({"history": samples(MINUTE, due=500)}, Level.WATCH, "due at"),
        ({"partitions": [1]}, Level.TROUBLE, "1 of 4 partitions are nobody's"),
    ],
)
def test_what_is_wrong_is_said(changes: dict[str, Any], level: Level, words: str) -> None:
    found = verdict(worker(0, **changes), worker(1))
    assert found.level is level, found
    assert words in found.text
    assert words in found.points[0].text


@pytest.mark.parametrize(
    ("refused", "words"),
    [
        (1, "has refused 1 row in the last 100 s: its room is not up to date"),
        (3, "has refused 3 rows in the last 100 s: rooms are not up to date"),
    ],
)
def test_rows_that_were_refused_lately_are_to_be_looked_at(refused: int, words: str) -> None:
    history = samples(20)
    history[4].refused = refused
    found = verdict(worker(0, history=history), worker(1))
    assert found.level is Level.WATCH
    assert words in found.text
    assert "until the next heartbeat" in found.text


def test_the_worst_comes_first() -> None:
    found = verdict(
        worker(0, ready=False), worker(1, live=False), unreachable={"http://w": "http://w is away"}
    )
    assert found.level is Level.TROUBLE
    assert found.text == "http://w is away (and 2 more)"
    assert [point.level for point in found.points] == [Level.TROUBLE, Level.TROUBLE, Level.WATCH]
    # Whose partitions are missing is clear enough then.
    assert not any("nobody's" in point.text for point in found.points)


def test_partitions_that_are_being_recovered_are_no_trouble_yet() -> None:
    found = verdict(worker(0), worker(1, partitions=[], ready=False, recovered=False))
    assert found.level is Level.WATCH


def test_due_rooms_that_are_new_each_time_are_the_ordinary_case() -> None:
    busy = samples(MINUTE, rows=25, due=30)
    assert verdict(worker(0, history=busy), worker(1)).level is Level.WELL


def test_workers_are_added_up() -> None:
    early = ErrorLine(1_000, "WARNING", "app", "early")
    late = ErrorLine(2_000, "ERROR", "app", "late", 3)
    one = worker(0, errors=[early])
    other = worker(1, errors=[late], dead_letters={"not-json": 2, "too-deep": 5})
    seen = overview_of([other, one], {"http://gone:1": "http://gone:1 does not answer"})
    assert seen.rooms == Rooms(200, 180, 10, 6, 4, 300)
    assert list(seen.dead_letters.items()) == [("too-deep", 5), ("not-json", 3)]
    assert [(line.url, line.asked, line.ready, line.error) for line in seen.workers] == [
        ("http://gone:1", False, False, "http://gone:1 does not answer"),
        (one.url, False, True, None),
        (other.url, True, True, None),
    ]
    assert [(line.text, line.times, line.worker) for line in seen.errors] == [
        ("late", 3, other.url),
        ("early", 1, one.url),
    ]
    assert {(lag.partition, lag.worker) for lag in seen.lag} == {(0, one.url), (1, other.url)}
    assert all(sample.records == 1_000 for sample in seen.history)


def test_an_interval_that_others_may_not_have_told_about_is_left_out() -> None:
    early = worker(0, now_ms=NOW + 900)
    assert overview_of([early], {}).history[-1].at_ms == NOW - 2 * INTERVAL_MS
    assert overview_of([worker(0)], {}).history[-1].at_ms == NOW - INTERVAL_MS


def test_what_is_told_can_be_read_again() -> None:
    made = worker(0, errors=[ErrorLine(1, "ERROR", "a", "b")])
    assert msgspec.json.decode(msgspec.json.encode(made), type=Summary) == made
