"""SIGTERM under load on Apache Kafka, when what a worker needs for its end does not answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from heartbeat_stream.local.apache_kafka import ApacheKafka
from heartbeat_stream.local.fleet import Fleet
from heartbeat_stream.local.postgres import PostgresServer
from tests.support.brokers import on_kafka
from tests.support.verdict import Crash, all_is_right
from tests.support.worker import Worker
from tests.support.world import World, load

pytestmark = pytest.mark.slow

HOTELS, ROOMS_PER_HOTEL = 20, 250
RATE = 3_000
DRAIN_TIMEOUT_MS = 3_000
#: What is left of the drain timeout's parts, and of ending Faust, is two thirds of this.
GRACE_S = 15.0


@pytest.fixture(scope="module")
def database() -> Iterator[PostgresServer]:
    """A server that may be mistreated."""
    with PostgresServer() as server:
        yield server


async def ends_within_its_grace(worker: Worker) -> None:
    worker.terminate()
    assert await worker.ended(GRACE_S) == 0, worker.log_end()
    assert "Traceback" not in worker.log_text(), worker.log_end()


async def goes_on(worker: Worker) -> None:
    await worker.ready()
    await worker.until_metric("heartbeat_rows_written_total", HOTELS * ROOMS_PER_HOTEL)


@on_kafka
async def test_nothing_is_in_its_way(world: World) -> None:
    """Nothing is repeated: not a crash, so no write of a room comes early."""
    await world.prepare()
    async with load(world, Fleet(HOTELS, ROOMS_PER_HOTEL), RATE) as running:
        for _ in range(3):
            worker = world.start_worker()
            await goes_on(worker)
            await ends_within_its_grace(worker)
        await goes_on(world.start_worker())
    await all_is_right(world, running.oracle)


@on_kafka
async def test_the_database_is_frozen(world: World, database: PostgresServer) -> None:
    await world.prepare(database_url=database.url, drain_timeout_ms=DRAIN_TIMEOUT_MS)
    worker = world.start_worker()
    async with load(world, Fleet(HOTELS, ROOMS_PER_HOTEL), RATE) as running:
        await goes_on(worker)
        begins = Crash.now()
        database.freeze()
        try:
            figures = await worker.metrics()
            await worker.until_metric(
                "heartbeat_records_total", figures["heartbeat_records_total"] + 2 * RATE
            )
            await worker.until_metric("heartbeat_rooms_in_flight", 1)
            await ends_within_its_grace(worker)
        finally:
            database.thaw()
        # What was sent last may have landed unknown to it.
        crashes = [begins.until_now()]
        await goes_on(world.start_worker())
    await all_is_right(world, running.oracle, crashes=crashes)


@pytest.mark.kafka
@pytest.mark.parametrize("how", ["killed", "frozen"])
async def test_the_broker_is_gone(own_world: World, one_node: ApacheKafka, how: str) -> None:
    await own_world.prepare(drain_timeout_ms=DRAIN_TIMEOUT_MS)
    worker = own_world.start_worker()
    async with load(own_world, Fleet(HOTELS, ROOMS_PER_HOTEL), RATE) as running:
        await goes_on(worker)
        begins = Crash.now()
        if how == "killed":
            await asyncio.to_thread(one_node.kill)
        else:
            one_node.freeze()
        try:
            await worker.until_metric("heartbeat_fetch_age_seconds", 2)
            await ends_within_its_grace(worker)
        finally:
            if how == "killed":
                await asyncio.to_thread(one_node.start_node)
            else:
                one_node.thaw()
        # Its last writes stand in no changelog.
        crashes = [begins.until_now()]
        await goes_on(own_world.start_worker())
    await all_is_right(own_world, running.oracle, crashes=crashes, outage=True)
