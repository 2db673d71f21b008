"""Tracking events on a real broker and database: recognised, marked or dropped, and stored once."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from heartbeat_stream.core.tracking_record import Envelope, Verdict
from tests.support.oracle import now_ms
from tests.support.streams import headers_of, no_lag_of_jobs
from tests.support.tracking import event, prepare_tracking, report, stored
from tests.support.world import World


@pytest.mark.parametrize("keyed", [False, True], ids=["unkeyed", "keyed"])
async def test_marked_and_stored_with_all_that_is_known(world: World, keyed: bool) -> None:
    await prepare_tracking(world, tracking_keyed=keyed)
    values = [
        event(1),
        event(1, _flush_time=1_700_000_006_000, remark="beta"),
        event(2, remark="du-beta"),
        event(2, remark="du-beta"),
        event(3, _track_id=0),
        event(3, _track_id=0),
        event(4, type="profile_set"),
        event(4, type="profile_set"),
        b"no event",
        event(5, properties={"text": "\0"}),  # which no JSONB holds
        event(6),
    ]
    sent_ms = now_ms()
    await report(world, values, at_ms=sent_ms)
    worker = await world.start_worker().ready()
    await no_lag_of_jobs(world)

    rows = await stored(world)
    kept = [row["remark"] for row in rows]
    assert kept == [None, "du-beta", "du-beta", "du-beta", *[None] * 5]
    assert [row["offset"] for row in rows] == [0, 1, 2, 3, 4, 5, 6, 7, 10]
    first = rows[0]
    assert {name: first[name] for name in ("project", "distinct_id", "lib", "event", "type")} == {
        "project": "shop",
        "distinct_id": "user-1",
        "lib": "js",
        "event": "view",
        "type": "track",
    }
    assert (first["track_id"], first["time"]) == ("1001", 1_700_000_000_001)
    assert first["flush_time"] == 1_700_000_005_000
    assert first["received_at"] == datetime.fromtimestamp(sent_ms / 1000, UTC)
    assert first["stored_at"] >= first["received_at"]
    assert json.loads(first["document"]) == json.loads(values[0])
    letters = {
        int(headers_of(one)["source-offset"]): one.value for one in await world.dead_letters()
    }
    assert letters == {8: values[8], 9: values[9]}
    figures = await worker.metrics()
    assert figures["heartbeat_tracking_events_total"] == 10


async def test_dropped(world: World) -> None:
    await prepare_tracking(world, tracking_policy="drop")
    await report(world, [event(n // 3) for n in range(30)])
    await world.start_worker().ready()
    await no_lag_of_jobs(world)
    rows = await stored(world)
    assert [(row["offset"], row["remark"]) for row in rows] == [(3 * n, None) for n in range(10)]


async def test_a_verdict_of_the_door_is_kept(world: World) -> None:
    await prepare_tracking(world)
    received_ms = now_ms() - 3 * 86_400_000  # in a spool for days: a day of its own
    for verdict in (Verdict.FIRST, Verdict.FIRST, Verdict.UNJUDGED, Verdict.DUPLICATE):
        await report(world, [event(1)], Envelope("door", "live", received_ms, verdict))
    await world.start_worker().ready()
    await no_lag_of_jobs(world)
    rows = await stored(world)
    assert [row["remark"] for row in rows] == ["live", "live", "live", "du-live"]
    assert {row["project"] for row in rows} == {"door"}
    assert {row["received_at"] for row in rows} == {datetime.fromtimestamp(received_ms / 1000, UTC)}


async def test_an_event_is_forgotten_after_the_window(world: World) -> None:
    await prepare_tracking(world, tracking_window_ms=60_000)
    start = now_ms() - 1_000_000
    for at_ms in (0, 59_999, 100_000, 160_000):  # each copy is remembered anew
        await report(world, [event(1)], at_ms=start + at_ms)
    await world.start_worker().ready()
    await no_lag_of_jobs(world)
    assert [row["remark"] for row in await stored(world)] == [None, "du-", "du-", None]
