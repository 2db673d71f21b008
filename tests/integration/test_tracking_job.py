"""Tracking events on a real broker and database: recognised, marked or dropped, and stored once."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import aiohttp
import pytest

from heartbeat_stream.core.tracking_record import Envelope, Verdict
from heartbeat_stream.local.sdk_reports import send_report
from heartbeat_stream.settings import Settings
from tests.support.brokers import on_embedded
from tests.support.door import PATIENT, open_door
from tests.support.oracle import now_ms
from tests.support.sdk import event as sdk_event
from tests.support.streams import headers_of, lag_of_jobs, no_lag_of_jobs, source
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


async def test_what_is_read_again_after_a_kill_is_stored_once(world: World) -> None:
    """Nothing of it was committed: all of it is forwarded, judged and handed over again."""
    await prepare_tracking(world, checkpoint_ms=600_000)
    sent = [event(n // 2) for n in range(400)]
    await report(world, sent)
    worker = await world.start_worker().ready()

    async def all_stored() -> bool:
        return len(await stored(world)) == len(sent)

    await worker.until(all_stored, what="all are stored")
    before = await stored(world)
    assert await world.lag(source(world, "tracking")) == len(sent)
    await worker.kill()
    again = await world.start_worker().ready()
    await again.until_metric("heartbeat_tracking_events_total", 2 * len(sent))
    await again.stopped()
    assert await lag_of_jobs(world) == 0
    assert await stored(world) == before, "not even touched: their stored_at is the same"
    assert [row["remark"] for row in before] == [None, "du-"] * 200


async def test_nothing_counts_as_read_before_its_row_is_there(world: World) -> None:
    """The table is locked, and the worker is killed with all of its rows on their way."""
    await prepare_tracking(world, checkpoint_ms=200)
    await report(world, [event(n) for n in range(200)])
    async with world.table.connect() as connection, connection.transaction():
        await connection.execute(f"LOCK TABLE {world.settings.tracking_table}")
        worker = await world.start_worker().ready()
        await worker.until_metric("heartbeat_tracking_events_total", 200)
        await worker.until_metric("heartbeat_checkpoint_age_seconds", 2)
        await worker.kill()
    await world.start_worker().ready()
    await no_lag_of_jobs(world)
    assert [row["offset"] for row in await stored(world)] == list(range(200))


@on_embedded
async def test_what_the_door_has_judged_is_not_judged_again(world: World) -> None:
    """Copies that pass a door without an answer of its store stay unmarked, although the job could
    tell; those that it has marked stay marked, although the job has seen no other."""
    await prepare_tracking(world, tracking_place="door", **PATIENT)
    world.set(collect_store="memory")
    deaf = Settings.load(
        {
            **world.environment,
            "HEARTBEAT_COLLECT_STORE": "redis",
            "HEARTBEAT_COLLECT_REDIS_URL": "redis://127.0.0.1:1/0",
        }
    )
    worker = await world.start_worker().ready()
    async with (
        open_door(world.settings) as door,
        open_door(deaf) as deaf_door,
        aiohttp.ClientSession() as session,
    ):
        for url in (door.url, door.url, deaf_door.url, deaf_door.url):
            body = sdk_event(1, remark="own")
            assert (
                await send_report(session, url, "form", body, project="shop", remark="live") == 200
            )
        assert await send_report(session, deaf_door.url, "json", sdk_event(2, _track_id=0)) == 200
    await no_lag_of_jobs(world)
    rows = await stored(world)
    found = sorted(
        (row["project"], row["track_id"], row["remark"]) for row in rows if row["remark"]
    )
    assert found == [("shop", "100001", remark) for remark in ("du-live", "live", "live", "live")]
    assert [row["remark"] for row in rows if row["project"] == "default"] == [None]
    figures = await worker.metrics()
    assert figures["heartbeat_tracking_events_total"] == 5
    assert figures["heartbeat_remembered_total"] == 0, "it remembers none of them"
