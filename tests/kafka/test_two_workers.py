"""Two workers on one machine that nobody has told of each other."""

import asyncio
import json

import pytest

from heartbeat_stream.core.heartbeat import Heartbeat, room_key
from heartbeat_stream.core.partition import partition_for
from tests.support.odd_rooms import ODD_ROOMS, UNKNOWN_PATHS, columns, table_path
from tests.support.oracle import Oracle, now_ms
from tests.support.wait import wait_until_async
from tests.support.worker import Worker
from tests.support.world import World

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

#: What keeps this test from others; all the rest is left at its default.
NAMES = ("BROKERS", "DATABASE_URL", "APP_ID", "TOPIC", "DEAD_LETTER_TOPIC", "TABLE")
PARTITIONS = 8


async def owned(worker: Worker) -> set[int]:
    return set(json.loads((await worker.get("/health/ready"))[1])["partitions"])


async def test_two_workers_with_default_settings(world: World) -> None:
    world.environment = {
        name: world.environment[name] for name in (f"HEARTBEAT_{name}" for name in NAMES)
    }
    await world.prepare()
    workers = [world.workers.start_with_defaults(world.environment) for _ in range(2)]
    await asyncio.gather(*(worker.ready() for worker in workers))

    async def shared() -> bool:
        shares = [await owned(worker) for worker in workers]
        return all(shares) and set.union(*shares) == set(range(PARTITIONS))

    await wait_until_async(shared, 60, what="each has a share of the partitions")
    assert not set.intersection(*[await owned(worker) for worker in workers])
    assert workers[0].port != workers[1].port
    directories = world.directory / "data" / world.settings.app_id
    assert {path.name for path in directories.iterdir()} == {"worker-0", "worker-1"}

    oracle = Oracle()
    heartbeats = [Heartbeat(7, room, now_ms(), "d", 1) for room in ODD_ROOMS]
    heartbeats += [Heartbeat(7, f"{number}", now_ms()) for number in range(100)]
    await world.send(heartbeats, oracle=oracle)
    await oracle.matches(world.table)
    # Each has rooms of its own, and answers for those of the other, too.
    at = {partition_for(room_key(7, room), PARTITIONS) for room in ODD_ROOMS}
    assert all([at & await owned(worker) for worker in workers])
    for worker in workers:
        for one in heartbeats[: len(ODD_ROOMS)]:
            status, body = await worker.get(table_path("latest", one.room_id))
            assert status == 200, (one.room_id, body)
            assert json.loads(body) == columns(one)
            status, body = await worker.get(table_path("last_written_at", one.room_id))
            assert (status, json.loads(body)["ts_ms"]) == (200, one.ts_ms), one.room_id
        for table in ("latest", "last_written_at"):
            for key in UNKNOWN_PATHS:
                status, body = await worker.get(f"/table/{table}/{key}/")
                assert status == 404, (table, key, status, body)
    await world.table.keeps_cooldown(30_000)
    assert all("Traceback" not in worker.log_text() for worker in workers)

    # One of them leaves and comes back: to its own directory, and to its share.
    await workers[0].stopped()
    await workers[1].until_metric("heartbeat_partitions_owned", PARTITIONS)
    for one in heartbeats[: len(ODD_ROOMS)]:
        status, body = await workers[1].get(table_path("latest", one.room_id))
        assert status == 200, (one.room_id, body)
        assert json.loads(body) == columns(one)
    workers[0] = await world.workers.start_with_defaults(world.environment).ready()
    await wait_until_async(shared, 60, what="each has a share again")
    assert {path.name for path in directories.iterdir()} == {"worker-0", "worker-1"}
    await workers[1].stopped()
    await workers[0].until_metric("heartbeat_partitions_owned", PARTITIONS)
    await workers[0].stopped()
