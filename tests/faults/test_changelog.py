"""Changelogs that lose their records, and topics that grow."""

from __future__ import annotations

import shutil

import msgspec
import pytest

from heartbeat_stream.core.heartbeat import Heartbeat
from heartbeat_stream.local.fleet import Fleet
from heartbeat_stream.streaming.topics import TABLES, TopicSpec
from tests.support import kafka_admin
from tests.support.brokers import on_kafka
from tests.support.oracle import Oracle, now_ms
from tests.support.topic_reader import read_topic
from tests.support.wait import wait_until_async
from tests.support.worker import Worker
from tests.support.world import World, encode, load

pytestmark = [on_kafka, pytest.mark.slow]

RATE = 2_000
HOTELS, ROOMS_PER_HOTEL = 40, 100
ROOMS = HOTELS * ROOMS_PER_HOTEL
#: Longer than a restart takes: whoever forgets when a room was written writes it too early.
COOLDOWN_MS = 10_000
READY_WITHIN_S = 20.0


async def empty_changelogs(world: World) -> None:
    """Delete all records. Kafka does so only where a topic is not compacted."""
    servers = world.bootstrap_servers
    for topic in map(world.changelog, TABLES):
        await kafka_admin.alter_topic_config(servers, topic, {"cleanup.policy": "delete"})
        for partition in range(world.settings.partitions):
            await kafka_admin.delete_records(servers, topic, partition, -1)
        await kafka_admin.alter_topic_config(servers, topic, {"cleanup.policy": "compact"})
        assert await world.newest_in(topic) == {}


@pytest.mark.parametrize("files", ["kept", "removed"])
async def test_records_are_deleted_up_to_the_end(world: World, files: str) -> None:
    await world.prepare(cooldown_ms=COOLDOWN_MS, buffer_window_ms=100)
    fleet = Fleet(hotels=HOTELS, rooms_per_hotel=ROOMS_PER_HOTEL)
    worker = await world.start_worker().ready()
    async with load(world, fleet, RATE) as running:
        await worker.until_metric("heartbeat_rows_written_total", ROOMS)
    # What is pending stands nowhere else.
    await running.oracle.matches(world.table)
    rooms = set(running.oracle.newest)
    await worker.stopped()
    await empty_changelogs(world)
    if files == "removed":
        shutil.rmtree(world.settings.data_dir)
    worker = await world.start_worker().ready(READY_WITHIN_S)
    async with load(world, fleet, RATE) as running:
        await worker.until_metric("heartbeat_rows_written_total", ROOMS)
    await running.oracle.matches(world.table)
    # Without files and changelog nobody knows when a room was last written.
    await world.table.keeps_cooldown(COOLDOWN_MS, crashes=1 if files == "removed" else 0)
    await world.no_lag()
    assert len(await world.dead_letters()) == fleet.counts.broken.total()
    await worker.stopped()
    if files == "kept":  # the changelogs hold everything again
        for table in TABLES:
            assert len(await world.newest_in(world.changelog(table))) == len(
                rooms | set(running.oracle.newest)
            )


async def test_what_only_the_local_files_hold_goes_back_into_the_changelogs(world: World) -> None:
    """Of rooms that are silent, too, and once only."""
    await world.prepare(cooldown_ms=0, buffer_window_ms=0)
    oracle = Oracle()
    worker = await world.start_worker().ready()
    rooms = [Heartbeat(7, f"{number}", now_ms(), "silent") for number in range(1_000)]
    await world.send(rooms, oracle=oracle)
    await oracle.matches(world.table)
    await worker.stopped()
    await empty_changelogs(world)
    worker = await world.start_worker().ready()
    await worker.stopped()
    ends = {}
    for table in TABLES:
        newest = await world.newest_in(world.changelog(table))
        assert {key: one["ts_ms"] for key, one in newest.items()} == {
            f"7:{one.room_id}".encode(): one.ts_ms for one in rooms
        }
        ends[table] = await world.ends(world.changelog(table))
    worker = await world.start_worker().ready()
    await worker.stopped()
    assert {table: await world.ends(world.changelog(table)) for table in TABLES} == ends
    # Now that is all there is.
    shutil.rmtree(world.settings.data_dir)
    worker = await world.start_worker().ready()
    stale = [Heartbeat(7, one.room_id, one.ts_ms, "stale") for one in rooms]
    await world.send(stale)
    await worker.until_metric("heartbeat_stale_total", len(rooms))
    assert oracle.differences(await world.table.rows()) == []
    assert len(await world.table.attempts()) == len(rooms)
    await worker.stopped()


async def test_compaction_takes_only_what_was_overtaken_or_has_left(world: World) -> None:
    await world.prepare(
        cooldown_ms=500,
        buffer_window_ms=100,
        checkpoint_ms=200,
        state_ttl_ms=8_000,
        changelog_compaction_lag_ms=0,
    )
    oracle = Oracle()
    worker = await world.start_worker().ready()
    for table in TABLES:
        await kafka_admin.alter_topic_config(
            world.bootstrap_servers,
            world.changelog(table),
            {
                "cleanup.policy": "compact",
                "segment.ms": "200",
                "min.cleanable.dirty.ratio": "0.01",
                "min.compaction.lag.ms": "0",
                "delete.retention.ms": "0",
            },
        )
    silent = [Heartbeat(1, f"{number}", now_ms()) for number in range(500)]
    await world.send(silent, oracle=oracle)

    async def talk() -> None:
        await world.send(
            [Heartbeat(2, f"{number}", now_ms(), f"{now_ms()}") for number in range(200)],
            oracle=oracle,
        )

    async def all_have_left() -> bool:
        await talk()
        return (await worker.metrics())["heartbeat_rooms_expired_total"] >= len(silent)

    await worker.until(all_have_left, 60, what="the silent rooms have left the tables")
    await oracle.matches(world.table)

    async def compacted() -> bool:
        """Not even the tombstones are left, but for what stands in the newest segments."""
        await talk()  # a segment is closed when the next record comes
        records = await read_topic(world.bootstrap_servers, world.changelog("latest"))
        return not any(record.key.startswith(b"1:") for record in records)

    await worker.until(compacted, 90, what="compaction has taken the silent rooms")
    await worker.kill()
    shutil.rmtree(world.settings.data_dir)
    worker = await world.start_worker().ready()
    await world.no_lag()
    for room in (silent[0], silent[-1]):
        assert (await worker.get(f"/table/latest/1:{room.room_id}/"))[0] == 404
    for number in (0, 199):
        status, body = await worker.get(f"/table/latest/2:{number}/")
        assert status == 200
        assert msgspec.json.decode(body)["ts_ms"] == oracle.newest[2, f"{number}"].ts_ms
    await talk()
    await oracle.matches(world.table)
    await worker.stopped()


# -- topics that grow ----------------------------------------------------------------------------


async def prepare_growing(world: World, *, keyed: bool, partitions: int) -> None:
    """A source with 5 partitions, and workers that soon notice when there are more."""
    world.set(source_keyed=keyed, partitions=partitions, cooldown_ms=1_000)
    world.environment["CONSUMER_METADATA_MAX_AGE_MS"] = "500"  # one of Faust's own
    await world.create_topics(TopicSpec(world.topic, 5, 1))
    await world.prepare()


async def test_an_unkeyed_source_grows_while_a_worker_runs(world: World) -> None:
    """Its five partitions, and six, are no matter for the eight of the tables."""
    await prepare_growing(world, keyed=False, partitions=8)
    fleet = Fleet(hotels=HOTELS, rooms_per_hotel=ROOMS_PER_HOTEL)
    worker = await world.start_worker().ready()
    async with load(world, fleet, RATE) as running:
        await worker.until_metric("heartbeat_rows_written_total", ROOMS)
        await kafka_admin.create_partitions(world.bootstrap_servers, world.topic, 6)
        oracle = Oracle()
        new = [Heartbeat(30_000, f"{number}", now_ms()) for number in range(100)]
        async with world.producer() as producer:
            for heartbeat in new:
                await producer.send_and_wait(world.topic, encode(heartbeat), partition=5)
        oracle.accept(new)

        async def landed() -> bool:
            rows = await world.table.rows()
            return all(rows.get((one.hotel_id, one.room_id)) == one for one in new)

        await wait_until_async(landed, 60, what="what came into the new partition", every=0.2)
        written = (await worker.metrics())["heartbeat_rows_written_total"]
        await worker.until_metric("heartbeat_rows_written_total", written + ROOMS)
    oracle.accept(running.oracle.newest.values())
    await oracle.matches(world.table)
    await world.table.keeps_cooldown(1_000, crashes=0)
    await world.no_lag()
    assert len(await world.dead_letters()) == fleet.counts.broken.total()
    await worker.stopped()


async def test_a_keyed_source_grows_while_a_worker_runs(world: World) -> None:
    """Rooms have moved to partitions without their state: that is refused, with what to do."""
    await prepare_growing(world, keyed=True, partitions=5)
    oracle = Oracle()
    worker = await world.start_worker().ready()
    rooms = [Heartbeat(7, f"{number}", now_ms(), "before") for number in range(300)]
    await world.send(rooms, oracle=oracle)
    await oracle.matches(world.table)
    await kafka_admin.create_partitions(world.bootstrap_servers, world.topic, 6)
    world.set(partitions=6)
    await world.send([Heartbeat(7, one.room_id, now_ms(), "after") for one in rooms], oracle=oracle)
    refused(worker, await worker.ended(60))
    # So does the next one, at once.
    worker = world.start_worker()
    refused(worker, await worker.ended())
    # What it said is what helps.
    world.set(app_id=f"{world.settings.app_id}-2")
    worker = await world.start_worker().ready()
    await oracle.matches(world.table)
    await world.no_lag()
    await worker.stopped()


def refused(worker: Worker, code: int) -> None:
    assert code == 1
    log = worker.log_text()
    assert "Traceback" not in log
    (line,) = [line for line in log.splitlines() if "HEARTBEAT_APP_ID" in line]
    assert worker.environment["HEARTBEAT_TOPIC"] in line
