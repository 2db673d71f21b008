"""The JSON views behind the page /ui/, asked of a real worker."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

import pytest

from heartbeat_stream.core.heartbeat import Heartbeat, room_key
from heartbeat_stream.core.partition import partition_for
from heartbeat_stream.history import INTERVAL_MS
from heartbeat_stream.local.fleet import Fleet
from heartbeat_stream.web.rooms import LIMIT, LIMIT_MAX
from tests.support.brokers import on_embedded
from tests.support.odd_rooms import ODD_ROOMS
from tests.support.oracle import Oracle, now_ms
from tests.support.streams import prepare_jobs
from tests.support.worker import Worker
from tests.support.world import PARTITIONS, World, load

NEVER_MS = 600_000


async def asked(worker: Worker, view: str, status: int = 200, **query: Any) -> Any:
    code, body = await worker.get(f"/ui/api/{view}?{urlencode(query)}")
    assert code == status, (view, query, code, body)
    return json.loads(body)


@on_embedded
async def test_a_room_and_where_it_stands(world: World) -> None:
    await world.prepare(checkpoint_ms=NEVER_MS, cooldown_ms=NEVER_MS)
    worker = await world.start_worker().ready()
    oracle = Oracle()
    sent = now_ms()
    await world.send([Heartbeat(7, room, sent, "d", 1) for room in ODD_ROOMS], oracle=oracle)
    await oracle.matches(world.table)
    for room_id in ODD_ROOMS:
        room = await asked(worker, "room", hotel=7, room=room_id)
        assert room["newest"] == {
            "hotel_id": 7,
            "room_id": room_id,
            "ts_ms": sent,
            "device_id": "d",
            "status": 1,
        }
        assert room["written"]["ts_ms"] == sent
        assert sent <= room["written"]["at"] <= now_ms()
        assert (room["state"], room["due_at"]) == ("at rest", None)
        assert room["rests_until"] == room["written"]["at"] + NEVER_MS
        assert 0 <= room["silent_ms"] == room["now_ms"] - sent
        assert room["partition"] == partition_for(room_key(7, room_id), PARTITIONS)
        assert room["owner"] == f"http://127.0.0.1:{worker.port}"
    # Something newer waits for the cooldown. The spelling of the hotel does not matter.
    await world.send([Heartbeat(7, "大会议室", sent + 1)])
    await worker.until_metric("heartbeat_rooms_pending", 1)
    room = await asked(worker, "room", hotel="007", room="大会议室")
    assert (room["newest"]["ts_ms"], room["written"]["ts_ms"]) == (sent + 1, sent)
    assert room["state"] == "in cooldown"
    assert room["due_at"] == room["written"]["at"] + NEVER_MS


@on_embedded
async def test_what_cannot_be_a_room_and_what_is_not_known(world: World) -> None:
    await world.prepare()
    worker = await world.start_worker().ready()
    unknown = await asked(worker, "room", 404, hotel=7, room="nobody")
    assert unknown["owner"] == f"http://127.0.0.1:{worker.port}"
    assert unknown["partition"] == partition_for(b"7:nobody", PARTITIONS)
    wrong: list[dict[str, Any]] = [
        {},
        {"hotel": 7},
        {"room": 1},
        {"hotel": "x", "room": 1},
        {"hotel": 32768, "room": 1},
        {"hotel": 7, "room": "x" * 256},
        {"hotel": 7, "room": "a\0"},
    ]
    for query in wrong:
        assert "should be" in (await asked(worker, "room", 400, **query))["error"], query
    for limit in ("0", str(LIMIT_MAX + 1), "-1", "x", "1.5", "9" * 5000, "٣"):
        assert "limit" in (await asked(worker, "rooms", 400, hotel=7, limit=limit))["error"]
    await asked(worker, "rooms", 400, hotel="")
    await asked(worker, "rooms", 400, hotel=7, after="x" * 256)
    for after in ("7", "7:", ":101", "x:101", "101", "32768:1"):
        assert "should be" in (await asked(worker, "rooms", 400, after=after))["error"], after
    for odd in ("hotel=%FF&room=%FF", "hotel=7&room=%ED%A0%80", "%", "hotel=7&room=1&room=2"):
        assert (await worker.get(f"/ui/api/room?{odd}"))[0] in (400, 404), odd
    assert "Traceback" not in worker.log_text()


async def all_pages(worker: Worker, **query: Any) -> list[Any]:
    """Rooms from the first page to the last."""
    found: list[Any] = []
    while True:
        page = await asked(worker, "rooms", **query)
        assert page["missing"] == []
        assert len(page["rooms"]) <= LIMIT
        found += page["rooms"]
        if page["next"] is None:
            return found
        assert len(page["rooms"]) == LIMIT
        query["after"] = page["next"]


@on_embedded
@pytest.mark.parametrize("cache_rooms", [100_000, 0], ids=["in memory", "on disk"])
async def test_rooms_page_by_page(world: World, cache_rooms: int) -> None:
    await world.prepare(cache_rooms=cache_rooms, cooldown_ms=0, buffer_window_ms=0)
    worker = await world.start_worker().ready()
    oracle = Oracle()
    sent = now_ms() - 60_000
    rooms = [*ODD_ROOMS, *(f"{number}" for number in range(1000, 1130))]
    heartbeats = [Heartbeat(7, room, sent, None, 2) for room in rooms]
    # Hotels whose keys lie around those of the hotel, and one that it is the beginning of.
    others = [Heartbeat(hotel, room, sent) for hotel in (6, 8, 70, 77) for room in ("1", "zz")]
    await world.send(heartbeats + others, oracle=oracle)
    await oracle.matches(world.table)
    await world.no_lag()  # so they are in the tables

    found = await all_pages(worker, hotel=7)
    assert [room["newest"]["room_id"] for room in found] == sorted(rooms, key=str.encode)
    assert all(room["newest"]["hotel_id"] == 7 for room in found)
    assert all(room["silent_ms"] >= 60_000 for room in found)
    assert all(room["written"]["ts_ms"] == sent for room in found)
    assert len((await asked(worker, "rooms", hotel=7, limit=1))["rooms"]) == 1
    of_all = [
        f"{room['newest']['hotel_id']}:{room['newest']['room_id']}"
        for room in await all_pages(worker)
    ]
    assert of_all == sorted((f"{hotel}:{room}" for hotel, room in oracle.newest), key=str.encode)
    exact = await asked(worker, "rooms", hotel=8, limit=2)
    assert (len(exact["rooms"]), exact["next"]) == (2, None)
    assert (await asked(worker, "rooms", hotel=9))["rooms"] == []


@on_embedded
async def test_how_all_workers_are(world: World) -> None:
    await world.prepare()
    worker = await world.start_worker().ready()
    async with world.producer() as producer:
        for value in (b"{}", b"{}", b"no json"):
            await producer.send_and_wait(world.topic, value)
    await worker.until_metric("heartbeat_dead_letters_total", 3)
    dead_letters = (await asked(worker, "overview"))["dead_letters"]
    assert list(dead_letters.items()) == [("missing-field", 2), ("not-json", 1)]
    async with load(world, Fleet(hotels=2, rooms_per_hotel=50), 300):

        async def two_samples() -> bool:
            return len((await asked(worker, "overview"))["history"]) >= 2

        await worker.until(two_samples, 60, what="two samples")
        seen = await asked(worker, "overview")
    assert seen["verdict"]["level"] == "well", seen["verdict"]
    assert "1 worker" in seen["verdict"]["text"]
    assert seen["guarded"] is False
    assert seen["workers"] == [
        {
            "url": f"http://127.0.0.1:{worker.port}",
            "asked": True,
            "ready": True,
            "partitions": list(range(PARTITIONS)),
            "pending": seen["rooms"]["pending"],
            "error": None,
        }
    ]
    assert seen["partitions_total"] == PARTITIONS
    assert 0 < seen["rooms"]["pending"] <= seen["rooms"]["in_memory"] <= 100
    assert {(one["topic"], one["partition"]) for one in seen["lag"]} == {
        (topic, partition)
        for topic in (world.topic, world.repartition_topic)
        for partition in range(PARTITIONS)
    }
    assert seen["interval_ms"] == INTERVAL_MS
    first, second = (dict(zip(seen["columns"], one, strict=True)) for one in seen["history"][:2])
    assert second["at_ms"] - first["at_ms"] == INTERVAL_MS
    figures = await worker.metrics()
    samples = [dict(zip(seen["columns"], one, strict=True)) for one in seen["history"]]
    assert 0 < sum(one["records"] for one in samples) <= figures["heartbeat_records_total"]
    assert 0 < sum(one["rows"] for one in samples) <= figures["heartbeat_rows_written_total"]
    assert (await asked(worker, "worker"))["records"] > 0


@on_embedded
async def test_a_worker_without_the_job_that_knows_rooms(world: World) -> None:
    await prepare_jobs(world, "market")
    worker = await world.start_worker().ready()
    seen = await asked(worker, "overview")
    assert (seen["verdict"]["level"], seen["verdict"]["text"]) == ("well", "All is well. 1 worker.")
    assert seen["workers"][0]["partitions"] == list(range(PARTITIONS))
    assert seen["rooms"]["in_memory"] == 0
    for view in ("room", "rooms"):
        said = await asked(worker, view, 503, hotel=7, room=1)
        assert said["error"] == "this worker does not run the job heartbeats"


@on_embedded
async def test_before_it_knows_its_topics(world: World) -> None:
    """Nothing but an address that no broker answers at."""
    world.set(startup_timeout_ms=60_000, brokers="127.0.0.1:9")
    worker = world.start_worker()

    async def answers() -> bool:
        return bool(worker.port) and (await worker.get("/ui/api/overview"))[0] == 200

    await worker.until(answers, 60, what="it answers")
    seen = await asked(worker, "overview")
    assert seen["verdict"]["level"] == "watch"
    assert "waits for the brokers and the topics" in seen["verdict"]["text"]
    assert seen["partitions_total"] is None
    await asked(worker, "room", 503, hotel=7, room=1)
    await asked(worker, "rooms", 503, hotel=7)

    async def complained() -> bool:
        lines = (await asked(worker, "overview"))["errors"]
        return any(
            line["level"] == "WARNING" and "broker answers at 127.0.0.1:9" in line["text"]
            for line in lines
        )

    await worker.until(complained, 60, what="a line of its log")
