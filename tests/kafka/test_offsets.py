"""The offsets that a worker commits: exactly what is durable, and nothing that is not.

They stand on Faust's internals, bent in ``heartbeat_stream/streaming/transport.py``.
"""

import pytest
from aiokafka import AIOKafkaProducer

from heartbeat_stream.core.heartbeat import Heartbeat
from heartbeat_stream.local.fleet import Fleet
from tests.support.durability import witnessing
from tests.support.oracle import Oracle, now_ms
from tests.support.wait import wait_until_async
from tests.support.world import World, encode, load

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

#: Longer than a test: no checkpoint is made but those that something else brings about.
NEVER_MS = 600_000


def rooms(count: int, device: str) -> list[Heartbeat]:
    return [Heartbeat(7, f"{number}", now_ms(), device) for number in range(count)]


async def stands_in_changelog(world: World) -> dict[bytes, int]:
    """What the changelog holds of each room: a ``ts_ms``."""
    entries = await world.newest_in(world.changelog("latest"))
    return {key: entry["ts_ms"] for key, entry in entries.items()}


def newest_by_key(oracle: Oracle) -> dict[bytes, int]:
    return {f"{h}:{r}".encode(): one.ts_ms for (h, r), one in oracle.newest.items()}


@pytest.mark.parametrize("keyed", [False, True], ids=["unkeyed", "keyed"])
async def test_the_first_batch_of_a_new_group(world: World, keyed: bool) -> None:
    await world.prepare(source_keyed=keyed, checkpoint_ms=NEVER_MS)
    oracle = Oracle()
    await world.send(rooms(400, "first"), oracle=oracle)
    worker = await world.start_worker().ready()
    await worker.until_metric("heartbeat_merged_total", 400)
    # Worked on, in memory, even written to the database, but not durable: nothing is committed.
    await worker.until_metric("heartbeat_rows_written_total", 400)
    assert await world.committed() == {}
    assert await stands_in_changelog(world) == {}
    await worker.stopped()
    assert await world.committed() == await world.ends()
    assert await stands_in_changelog(world) == newest_by_key(oracle)


@pytest.mark.parametrize("keyed", [False, True], ids=["unkeyed", "keyed"])
async def test_a_batch_that_a_kill_interrupts_comes_again(world: World, keyed: bool) -> None:
    await world.prepare(source_keyed=keyed)
    oracle = Oracle()
    worker = await world.start_worker().ready()
    await world.send(rooms(100, "committed"), oracle=oracle)
    await world.no_lag()
    await worker.stopped()
    before = await world.committed()
    # From here on there is no checkpoint.
    worker = await world.start_worker(checkpoint_ms=NEVER_MS).ready()
    await world.send(rooms(100, "interrupted"), oracle=oracle)
    await worker.until_metric("heartbeat_records_total", 100)
    await worker.until_metric("heartbeat_rows_written_total", 100)
    await worker.kill()
    assert await world.committed() == before
    worker = await world.start_worker().ready()
    await worker.until_metric("heartbeat_records_total", 100)
    await world.no_lag()
    assert (await worker.metrics())["heartbeat_records_total"] == 100
    assert await stands_in_changelog(world) == newest_by_key(oracle)
    await oracle.matches(world.table)
    assert await world.committed() == await world.ends()


@pytest.mark.parametrize("keyed", [False, True], ids=["unkeyed", "keyed"])
async def test_a_rebalance_in_the_middle_of_a_batch(world: World, keyed: bool) -> None:
    await world.prepare(source_keyed=keyed, checkpoint_ms=NEVER_MS)
    oracle = Oracle()
    first = await world.start_worker().ready()
    await world.send(rooms(400, "first"), oracle=oracle)
    await first.until_metric("heartbeat_merged_total", 400)
    assert await world.committed() == {}
    second = await world.start_worker().ready()
    # The first one has given its partitions up: what it had worked on is durable and committed.
    await wait_until_async(
        lambda: partitions_are_shared(first, second), 30, what="both have partitions"
    )
    assert await world.committed() == await world.ends()
    if not keyed:
        assert await world.committed(world.repartition_topic) == await world.ends(
            world.repartition_topic
        )
    assert await stands_in_changelog(world) == newest_by_key(oracle)
    # And nothing of it comes again, neither here nor there.
    await world.send(rooms(400, "second"), oracle=oracle)
    await oracle.matches(world.table)
    counts = [(await one.metrics())["heartbeat_records_total"] for one in (first, second)]
    assert sum(counts) == 800
    assert counts[1] > 0
    await second.stopped()
    await first.stopped()
    assert await world.committed() == await world.ends()


async def partitions_are_shared(*workers: object) -> bool:
    owned = [(await one.metrics())["heartbeat_partitions_owned"] for one in workers]  # type: ignore[attr-defined]
    return sum(owned) == 4 and all(owned)


@pytest.mark.parametrize("keyed", [False, True], ids=["unkeyed", "keyed"])
async def test_at_every_moment_what_is_committed_is_durable(world: World, keyed: bool) -> None:
    await world.prepare(source_keyed=keyed, checkpoint_ms=200, cooldown_ms=1_000)
    fleet = Fleet(hotels=4, rooms_per_hotel=100, keyed=keyed)
    first = await world.start_worker().ready()
    async with witnessing(world) as witness, load(world, fleet, rate=3_000) as running:
        await first.until_metric("heartbeat_rows_written_total", 400)
        second = await world.start_worker().ready()
        await second.until_metric("heartbeat_rows_written_total", 50)
        await first.kill()
        await second.until_metric("heartbeat_partitions_owned", 4)
        await second.until_metric("heartbeat_rows_written_total", 400)
        third = await world.start_worker().ready()
        await third.until_metric("heartbeat_rows_written_total", 50)
        await second.stopped()
        await third.until_metric("heartbeat_partitions_owned", 4)
        await third.until_metric("heartbeat_rows_written_total", 400)
    await running.oracle.matches(world.table)
    await world.no_lag()
    await witness.look()
    assert len(witness.looks) > 20
    await witness.check()
    await world.table.keeps_cooldown(1_000, crashes=1)


@pytest.mark.parametrize("keyed", [False, True], ids=["unkeyed", "keyed"])
async def test_markers_of_transactions_leave_no_lag(world: World, keyed: bool) -> None:
    await world.prepare(source_keyed=keyed)
    oracle = Oracle()
    worker = await world.start_worker().ready()
    heartbeats = rooms(1_000, "committed")
    async with world.producer(transactional_id=f"{world.settings.app_id}-fleet") as producer:
        for start in range(0, 1_000, 100):
            async with producer.transaction():
                await send_all(world, producer, heartbeats[start : start + 100])
    oracle.accept(heartbeats)
    await worker.until_metric("heartbeat_records_total", 1_000)
    assert sum((await world.ends()).values()) > 1_000
    await world.no_lag()
    await oracle.matches(world.table)
    # The markers are behind the group also after a restart with nothing new to read.
    await worker.stopped()
    worker = await world.start_worker().ready()
    await world.no_lag()
    assert (await worker.metrics())["heartbeat_records_total"] == 0


async def test_faust_knows_of_the_commits(world: World) -> None:
    """Or it would say after five minutes of load that there were none, and never stop saying so."""
    await world.prepare(source_keyed=True, checkpoint_ms=200)
    world.environment["BROKER_COMMIT_LIVELOCK_SOFT_TIMEOUT"] = "2"  # seconds; one of Faust's own
    worker = await world.start_worker().ready()
    async with load(world, Fleet(4, 100, keyed=True), rate=4_000):
        await worker.until_metric("heartbeat_records_total", 60_000, 60)
    assert "Has not committed" not in worker.log_text()


@pytest.mark.parametrize("keyed", [False, True], ids=["unkeyed", "keyed"])
async def test_what_a_transaction_has_aborted_was_never_sent(world: World, keyed: bool) -> None:
    await world.prepare(source_keyed=keyed)
    oracle = Oracle()
    worker = await world.start_worker().ready()
    aborted = rooms(200, "aborted")
    committed = rooms(300, "committed")
    async with world.producer(transactional_id=f"{world.settings.app_id}-fleet") as producer:
        for start in range(0, 200, 100):
            await producer.begin_transaction()
            await send_all(world, producer, aborted[start : start + 100])
            await producer.abort_transaction()
            async with producer.transaction():
                await send_all(world, producer, committed[start : start + 100])
        async with producer.transaction():
            await send_all(world, producer, committed[200:])
        await producer.begin_transaction()
        await send_all(world, producer, aborted[:10])
        await producer.abort_transaction()  # with nothing behind it
    oracle.accept(committed)
    await oracle.matches(world.table)
    await world.no_lag()
    assert (await worker.metrics())["heartbeat_records_total"] == len(committed)
    assert (await worker.metrics())["heartbeat_lag_records"] == 0


async def send_all(world: World, producer: AIOKafkaProducer, heartbeats: list[Heartbeat]) -> None:
    for one in heartbeats:
        key = f"{one.hotel_id}:{one.room_id}".encode()
        await producer.send(world.topic, encode(one), key=key)
    await producer.flush()
