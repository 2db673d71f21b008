"""How a worker ends: on a signal, on a second one, and when it cannot go on."""

import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from heartbeat_stream.core.heartbeat import Heartbeat
from heartbeat_stream.local.broker import Broker
from heartbeat_stream.local.fleet import Fleet
from heartbeat_stream.local.process import free_port
from tests.support.brokers import on_embedded
from tests.support.oracle import Oracle, now_ms
from tests.support.wait import wait_until_async
from tests.support.worker import Worker
from tests.support.world import World, load

ENDING = "ending: writing what is due"


@asynccontextmanager
async def locked_table(world: World) -> AsyncIterator[None]:
    """While the block runs, every write waits for it."""
    async with world.table.connect() as connection, connection.transaction():
        await connection.execute(f"LOCK TABLE {world.table.table.quoted} IN EXCLUSIVE MODE")
        yield


async def says(worker: Worker, text: str) -> None:
    await wait_until_async(lambda: text in worker.log_text(), 20, what=f"log says {text!r}")


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
async def test_what_is_due_is_written_before_the_end(world: World, signum: signal.Signals) -> None:
    await world.prepare(buffer_window_ms=0, cooldown_ms=60_000, database_pool_size=1)
    oracle = Oracle()
    worker = await world.start_worker().ready()
    async with locked_table(world):
        # The first room is in flight and waits for the lock; the others are due behind it.
        await world.send([Heartbeat(7, "first", now_ms())], oracle=oracle)
        await worker.until_metric("heartbeat_rooms_in_flight", 1)
        await world.send([Heartbeat(7, f"{n}", now_ms()) for n in range(300)], oracle=oracle)
        await worker.until_metric("heartbeat_rooms_pending", 301)
        os.kill(worker.pid, signum)
        await says(worker, ENDING)
        assert await world.table.rows() == {}
    assert await worker.ended() == 0
    # No worker is there any more: what the table holds now, it wrote before it ended.
    assert oracle.differences(await world.table.rows()) == []
    # And it is known as written, and committed.
    written = await world.newest_in(world.changelog("last_written_at"))
    assert {key: entry["ts_ms"] for key, entry in written.items()} == {
        f"{hotel}:{room}".encode(): newest.ts_ms for (hotel, room), newest in oracle.newest.items()
    }
    assert await world.lag() == 0
    assert await world.lag(world.repartition_topic) == 0


async def test_a_stop_under_load_leaves_nothing_to_be_repeated(world: World) -> None:
    await world.prepare(source_keyed=True, cooldown_ms=3_000)
    fleet = Fleet(hotels=2, rooms_per_hotel=100, keyed=True)
    worker = await world.start_worker().ready()
    async with load(world, fleet, rate=2_000) as running:
        await worker.until_metric("heartbeat_rows_written_total", 300)
        await worker.stopped()
        done = sum((await world.committed()).values())
        worker = await world.start_worker().ready()
        await worker.until_metric("heartbeat_rows_written_total", 100)
    await running.oracle.matches(world.table)
    await world.no_lag()
    # What the first one had worked on it had committed, so the second one began there.
    assert (await worker.metrics())["heartbeat_records_total"] == running.sent - done
    assert len(await world.dead_letters()) == fleet.counts.broken.total()
    await world.table.keeps_cooldown(3_000, crashes=0)


async def test_what_cannot_be_written_stays_pending_and_the_end_is_bounded(world: World) -> None:
    await world.prepare(buffer_window_ms=0, cooldown_ms=0, drain_timeout_ms=2_000)
    oracle = Oracle()
    worker = await world.start_worker().ready()
    async with locked_table(world):
        await world.send([Heartbeat(7, f"{n}", now_ms()) for n in range(100)], oracle=oracle)
        await worker.until_metric("heartbeat_rooms_pending", 100)
        started = time.monotonic()
        await worker.stopped()
        assert time.monotonic() - started < 10
        assert await world.table.rows() == {}
    assert await world.lag() == 0
    await world.start_worker().ready()
    await oracle.matches(world.table)


async def test_a_second_signal_ends_it_at_once(world: World) -> None:
    await world.prepare(buffer_window_ms=0, drain_timeout_ms=120_000)
    oracle = Oracle()
    worker = await world.start_worker().ready()
    async with locked_table(world):
        await world.send([Heartbeat(7, "101", now_ms())], oracle=oracle)
        await worker.until_metric("heartbeat_rooms_in_flight", 1)
        worker.terminate()
        await says(worker, ENDING)
        worker.terminate()
        assert await worker.ended(5) == 1
    await world.start_worker().ready()
    await oracle.matches(world.table)


async def test_a_signal_while_it_joins_the_group(world: World) -> None:
    await world.prepare()
    worker = world.start_worker()
    await says(worker, "created topic")
    started = time.monotonic()
    worker.terminate()
    assert await worker.ended() == 0
    assert time.monotonic() - started < 10


@on_embedded
async def test_without_a_broker_it_gives_up_and_says_what_to_do(world: World) -> None:
    world.set(brokers=f"127.0.0.1:{free_port()}", startup_timeout_ms=1_000)
    worker = world.start_worker()
    assert await worker.ended() == 1
    last = worker.log_text().splitlines()[-1]
    assert "HEARTBEAT_BROKERS" in last
    assert "Traceback" not in worker.log_text()


@on_embedded
async def test_a_signal_while_it_waits_for_a_broker(world: World) -> None:
    world.set(brokers=f"127.0.0.1:{free_port()}")
    worker = world.start_worker()
    await says(worker, "waiting")
    worker.terminate()
    assert await worker.ended(10) == 0
    assert "ERROR   asyncio" not in worker.log_text()


async def test_a_topic_that_is_missing_is_waited_for(world: World) -> None:
    worker = world.start_worker()
    await says(worker, f"the topic {world.topic} does not exist")
    await world.prepare()
    await worker.ready()


async def test_a_worker_that_cannot_go_on_says_so_and_fails(world: World) -> None:
    await world.prepare()
    # Where a partition's local state should be stands a file.
    tables = world.settings.data_dir / world.settings.app_id / "worker-0" / "v1" / "tables"
    tables.mkdir(parents=True)
    (tables / "latest-0").write_text("in the way")
    worker = world.start_worker()
    assert await worker.ended() == 1
    assert str(tables / "latest-0") in worker.log_text()


@on_embedded
async def test_the_broker_goes_away_for_good(world: World) -> None:
    with Broker() as broker:
        world.set(
            brokers=broker.bootstrap_servers,
            session_timeout_ms=broker.session_timeout_ms,
            drain_timeout_ms=1_000,
        )
        world.bootstrap_servers = broker.bootstrap_servers
        await world.prepare()
        worker = await world.start_worker().ready()
        await world.send([Heartbeat(7, "101", now_ms())])
        await worker.until_metric("heartbeat_rooms_pending", 1)
    assert (await worker.get("/health/live"))[0] == 200
    started = time.monotonic()
    worker.terminate()
    assert await worker.ended() == 0
    assert time.monotonic() - started < 15
    assert "Traceback" not in worker.log_text()
