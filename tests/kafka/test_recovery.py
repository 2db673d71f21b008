"""What a worker makes of changelogs that others have written to, or that are not what they were.

They also show that Faust still hands recovery over to ``heartbeat_stream/streaming/recovery.py``.
"""

import shutil
from typing import Any

import msgspec
import pytest
from aiokafka.admin import AIOKafkaAdminClient

from heartbeat_stream.core.heartbeat import Heartbeat, room_key
from heartbeat_stream.core.partition import partition_for
from heartbeat_stream.streaming.topics import all_topics
from tests.support.oracle import Oracle, now_ms
from tests.support.wait import wait_until_async
from tests.support.worker import Worker
from tests.support.world import World

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

ROOMS = 200
NEVER_MS = 600_000
TABLES = ("latest", "last_written_at")


async def written_rooms(world: World, worker: Worker, oracle: Oracle) -> list[Heartbeat]:
    """Rooms that are in the database and in both changelogs."""
    heartbeats = [Heartbeat(7, f"{number}", now_ms(), "newest") for number in range(ROOMS)]
    await world.send(heartbeats, oracle=oracle)
    await worker.until_metric("heartbeat_rows_written_total", ROOMS)

    async def both_are_complete() -> bool:
        entries = [await world.newest_in(world.changelog(table)) for table in TABLES]
        return all(len(one) == ROOMS for one in entries)

    await wait_until_async(both_are_complete, what="all rooms in both changelogs")
    return heartbeats


async def write_late(world: World, heartbeat: Heartbeat, ts_ms: int) -> None:
    """What a worker that has lost its partition without noticing may write of a room."""
    key = room_key(heartbeat.hotel_id, heartbeat.room_id)
    partition = partition_for(key, world.settings.partitions)
    stored = (await world.newest_in(world.changelog("latest")))[key]
    entries: dict[str, dict[str, Any]] = {
        "latest": {**stored, "ts_ms": ts_ms, "device_id": "late"},
        "last_written_at": {"at": now_ms() - 60_000, "ts_ms": heartbeat.ts_ms - 60_000},
    }
    async with world.producer() as producer:
        for table, entry in entries.items():
            value = msgspec.json.encode(entry)
            await producer.send_and_wait(world.changelog(table), value, key, partition)


async def in_order_again(world: World, heartbeats: list[Heartbeat]) -> None:
    """Wait until the last record of each of these rooms is the newest one, in both changelogs."""

    async def mended() -> bool:
        for table in TABLES:
            entries = await world.newest_in(world.changelog(table))
            for one in heartbeats:
                entry = entries.get(room_key(one.hotel_id, one.room_id))
                if entry is None or entry["ts_ms"] != one.ts_ms:
                    return False
        return True

    await wait_until_async(mended, 30, what="what was overtaken is written again")


@pytest.mark.parametrize("files", ["kept", "removed"])
async def test_late_writes_of_another_worker(world: World, files: str) -> None:
    # The cooldown shows that the last write is still known, too.
    await world.prepare(cooldown_ms=600_000)
    oracle = Oracle()
    worker = await world.start_worker().ready()
    heartbeats = await written_rooms(world, worker, oracle)
    await worker.kill()
    older, newer = heartbeats[:5], heartbeats[5]
    for one in older:
        await write_late(world, one, one.ts_ms - 1_000)
    # It may also have seen one that nobody else has. (Its write does not count as that one's.)
    await write_late(world, newer, newer.ts_ms + 1)
    if files == "removed":
        shutil.rmtree(world.settings.data_dir)
    worker = await world.start_worker(cooldown_ms=1).ready()
    await in_order_again(world, older)
    oracle.accept([Heartbeat(7, newer.room_id, newer.ts_ms + 1, "late")])
    await oracle.matches(world.table)
    # Nothing else was written to the database once more.
    attempts = await world.table.attempts()
    assert len(attempts) == ROOMS + 1
    await worker.stopped()


async def test_late_writes_while_the_partition_is_ours(world: World) -> None:
    await world.prepare()
    oracle = Oracle()
    worker = await world.start_worker().ready()
    heartbeats = await written_rooms(world, worker, oracle)
    for one in heartbeats[:5]:
        await write_late(world, one, one.ts_ms - 1_000)
    # The next checkpoint of these partitions finds that its records don't follow on its last ones.
    others = [Heartbeat(7, f"other {number}", now_ms()) for number in range(20)]
    await world.send(others, oracle=oracle)
    await in_order_again(world, heartbeats[:5])
    assert "another worker has written" in worker.log_text()
    await oracle.matches(world.table)
    assert len(await world.table.attempts()) == ROOMS + len(others)
    # And the local copy is as good as new.
    await worker.kill()
    worker = await world.start_worker().ready()
    stale = [Heartbeat(7, one.room_id, one.ts_ms, "stale") for one in heartbeats]
    await world.send(stale)
    await worker.until_metric("heartbeat_stale_total", ROOMS)
    assert len(await world.table.attempts()) == ROOMS + len(others)


async def test_changelogs_that_were_made_again_are_filled_from_local_state(world: World) -> None:
    await world.prepare()
    oracle = Oracle()
    worker = await world.start_worker().ready()
    heartbeats = await written_rooms(world, worker, oracle)
    await worker.stopped()
    await make_again(world, [world.changelog(table) for table in TABLES])
    worker = await world.start_worker().ready()
    await in_order_again(world, heartbeats)
    assert "is not the one that the local copy was made from" in worker.log_text()
    # Now they hold everything also for somebody who has nothing else.
    await worker.stopped()
    shutil.rmtree(world.settings.data_dir)
    worker = await world.start_worker().ready()
    stale = [Heartbeat(7, one.room_id, one.ts_ms - 1, "stale") for one in heartbeats]
    await world.send(stale)
    await worker.until_metric("heartbeat_stale_total", ROOMS)
    assert oracle.differences(await world.table.rows()) == []
    assert len(await world.table.attempts()) == ROOMS


async def test_changelogs_that_were_made_again_and_a_kill_before_they_are_filled(
    world: World,
) -> None:
    """The next worker sees nothing odd any more, and fills them all the same."""
    await world.prepare()
    oracle = Oracle()
    worker = await world.start_worker().ready()
    heartbeats = await written_rooms(world, worker, oracle)
    await worker.stopped()
    entries = {table: await world.newest_in(world.changelog(table)) for table in TABLES}
    await make_again(world, [world.changelog(table) for table in TABLES])
    # Some rooms stand in the new ones, so that the local copy follows them.
    some = heartbeats[: ROOMS // 4]
    async with world.producer() as producer:
        for table, rooms in entries.items():
            for one in some:
                key = room_key(one.hotel_id, one.room_id)
                where = partition_for(key, world.settings.partitions)
                value = msgspec.json.encode(rooms[key])
                await producer.send_and_wait(world.changelog(table), value, key, where)
    worker = await world.start_worker(checkpoint_ms=NEVER_MS).ready()
    assert "is not the one that the local copy was made from" in worker.log_text()
    await worker.kill()
    assert len(await world.newest_in(world.changelog("latest"))) == len(some)
    worker = await world.start_worker().ready()
    assert "is not the one that the local copy was made from" not in worker.log_text()
    await in_order_again(world, heartbeats)
    await worker.stopped()


async def make_again(world: World, topics: list[str]) -> None:
    """Delete topics and create them anew, empty."""
    specs = all_topics(world.settings, await world.topics())
    admin = AIOKafkaAdminClient(bootstrap_servers=world.bootstrap_servers)
    await admin.start()
    await admin.delete_topics(topics)
    await admin.close()

    async def gone() -> bool:
        return not set(topics) & (await world.topics()).keys()

    await wait_until_async(gone, what="the topics are deleted")
    await world.create_topics(*(spec for spec in specs if spec.name in topics))
