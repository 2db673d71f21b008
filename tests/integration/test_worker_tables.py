"""The web view of a worker: its tables, with keys that are hard on a path, and its health."""

import json

import aiohttp
import pytest
from yarl import URL

from heartbeat_stream.core.heartbeat import Heartbeat
from tests.support.odd_rooms import ODD_ROOMS, UNKNOWN_PATHS, columns, table_path
from tests.support.oracle import Oracle, now_ms
from tests.support.worker import Worker
from tests.support.world import World

NEVER_MS = 600_000


async def page(worker: Worker, path: str) -> object:
    status, body = await worker.get(path)
    assert status == 200, (path, status, body)
    return json.loads(body)


@pytest.mark.parametrize("keyed", [False, True], ids=["unkeyed", "keyed"])
async def test_a_room_as_it_is_now(world: World, keyed: bool) -> None:
    # Nothing is checkpointed: the pages tell what memory knows.
    await world.prepare(source_keyed=keyed, checkpoint_ms=NEVER_MS, cooldown_ms=NEVER_MS)
    worker = await world.start_worker().ready()
    oracle = Oracle()
    now = now_ms()
    heartbeats = [Heartbeat(7, room, now, f"device of {room}"[:255], 1) for room in ODD_ROOMS]
    heartbeats.append(Heartbeat(8, "bare", now))
    await world.send(heartbeats, oracle=oracle)
    await oracle.matches(world.table)
    before = now_ms()
    for one in heartbeats:
        path = table_path("latest", one.room_id, one.hotel_id)
        assert await page(worker, path) == columns(one), path
        written = await page(worker, table_path("last_written_at", one.room_id, one.hotel_id))
        assert isinstance(written, dict)
        assert written.keys() == {"at", "ts_ms"}
        assert written["ts_ms"] == now
        assert now <= written["at"] <= before
    # What is newer, and not written for a long time, is there at once; the last write stays.
    newer = Heartbeat(7, "大会议室", now + 1, "newer", 2)
    await world.send([newer])
    await worker.until_metric("heartbeat_rooms_pending", 1)
    assert await page(worker, table_path("latest", newer.room_id)) == columns(newer)
    written = await page(worker, table_path("last_written_at", newer.room_id))
    assert isinstance(written, dict)
    assert written["ts_ms"] == now
    # A room that was never written has no last write.
    await world.send([Heartbeat(9, "new", now)])
    await worker.until_metric("heartbeat_rooms_pending", 2)


async def test_a_room_that_is_not_known(world: World) -> None:
    await world.prepare(buffer_window_ms=NEVER_MS)
    worker = await world.start_worker().ready()
    await world.send([Heartbeat(7, "101", now_ms())])
    await worker.until_metric("heartbeat_rooms_pending", 1)
    for table in ("latest", "last_written_at"):
        for key in UNKNOWN_PATHS:
            status, body = await worker.get(f"/table/{table}/{key}/")
            assert status == 404, (table, key, status, body)
    assert (await worker.get("/table/latest/7:101/"))[0] == 200
    assert (await worker.get("/table/last_written_at/7:101/"))[0] == 404
    assert (await worker.get("/table/nothing/7:101/"))[0] == 404
    assert "Traceback" not in worker.log_text()


async def test_health_metrics_and_fausts_own_pages(world: World) -> None:
    await world.prepare()
    worker = world.start_worker()
    await worker.until(lambda: answers(worker, "/health/live", 200), what="live before it is ready")
    await worker.ready()
    ready = await page(worker, "/health/ready")
    assert isinstance(ready, dict)
    assert ready["partitions"] == [0, 1, 2, 3]
    for path in ("/", "/table/", "/table/latest/", "/router/", "/metrics", "/health/live"):
        assert (await worker.get(path))[0] == 200, path
    assert "heartbeat_records_total" in await worker.metrics()
    # It listens on loopback alone unless told otherwise.
    url = URL.build(scheme="http", host="::1", port=worker.port, path="/health/live")
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientError):
            await session.get(url)


async def answers(worker: Worker, path: str, status: int) -> bool:
    return (await worker.get(path))[0] == status
