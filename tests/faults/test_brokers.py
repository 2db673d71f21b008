"""A broker that is restarted, frozen or not there yet, while heartbeats keep coming.

A worker sits an outage out: it neither ends nor says that it is dead, and goes on afterwards. The
embedded broker loses everything with its process, so all of this is on Apache Kafka alone.
"""

from __future__ import annotations

import asyncio

import pytest

from heartbeat_stream.local.apache_kafka import ApacheKafka
from heartbeat_stream.local.fleet import Fleet
from tests.support.busy import Scene, busy
from tests.support.faults import FULL
from tests.support.verdict import Crash, all_is_right
from tests.support.wait import wait_until_async
from tests.support.world import World, load

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.mark.parametrize("keyed", [False, True], ids=["unkeyed", "keyed"])
async def test_a_broker_that_is_restarted_twice(
    own_world: World, one_node: ApacheKafka, keyed: bool
) -> None:
    async with busy(own_world, keyed=keyed) as scene:
        await asyncio.to_thread(one_node.restart)
        await scene.goes_on()
        await asyncio.to_thread(one_node.kill)
        await asyncio.to_thread(one_node.start_node)
        await scene.goes_on()
    await all_is_right(own_world, scene.load.oracle, outage=True)
    await scene.workers[0].stopped()


async def test_a_broker_that_is_restarted_under_two_workers(
    own_world: World, one_node: ApacheKafka
) -> None:
    crashes: list[Crash] = []
    async with busy(own_world, 2) as scene:
        begins = Crash.now()  # a session may end meanwhile, and the partitions move
        await asyncio.to_thread(one_node.restart)
        await scene.goes_on()
        crashes.append(begins.until_now())
    await all_is_right(own_world, scene.load.oracle, crashes=crashes, outage=True)


@pytest.mark.parametrize("seconds", [5.0, 30.0])
async def test_a_broker_that_is_frozen(
    own_world: World, one_node: ApacheKafka, seconds: float
) -> None:
    """Beyond the session of 3 s. With one worker nothing can move, so nothing is written early."""
    async with busy(own_world) as scene:
        one_node.freeze()
        await without_an_answer(scene, seconds)
        one_node.thaw()
        await scene.goes_on()
    await all_is_right(own_world, scene.load.oracle, outage=True)


async def test_a_broker_that_is_frozen_under_two_workers(
    own_world: World, one_node: ApacheKafka
) -> None:
    crashes: list[Crash] = []
    async with busy(own_world, 2, keyed=True) as scene:
        begins = Crash.now()
        one_node.freeze()
        await without_an_answer(scene, 12)
        one_node.thaw()
        await scene.goes_on()
        crashes.append(begins.until_now())
    await all_is_right(own_world, scene.load.oracle, crashes=crashes, outage=True)


async def without_an_answer(scene: Scene, seconds: float) -> None:
    """Wait until no worker has had an answer to a fetch for so long."""
    for worker in scene.workers:
        await worker.until_metric("heartbeat_fetch_age_seconds", seconds, 2 * seconds + 30)


async def test_a_broker_that_is_absent_at_the_start(
    own_world: World, one_node: ApacheKafka
) -> None:
    """A minute with HEARTBEAT_TEST_FULL=1; a quarter of one without."""
    await own_world.prepare()
    await asyncio.to_thread(one_node.stop_node)
    worker = own_world.start_worker(startup_timeout_ms=180_000)
    lines = 7 if FULL else 2  # one in ten seconds
    await wait_until_async(
        lambda: worker.log_text().count("no Kafka broker answers") >= lines, 90, what="it complains"
    )
    assert worker.running
    await asyncio.to_thread(one_node.start_node)
    await worker.ready()
    fleet = Fleet(20, 250)
    async with load(own_world, fleet, 3_000) as running:
        await worker.until_metric("heartbeat_records_total", 3_000)
    await all_is_right(own_world, running.oracle)
