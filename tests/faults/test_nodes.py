"""A cluster of three nodes that loses one of them, and leaders that move."""

from __future__ import annotations

import asyncio

import pytest

from heartbeat_stream.local.apache_kafka import ApacheKafka
from tests.support.busy import busy
from tests.support.kafka_admin import coordinator_of, leader_of
from tests.support.verdict import Crash, all_is_right
from tests.support.world import World

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.mark.parametrize("which", ["leader", "coordinator"])
async def test_one_node_of_three_is_lost(
    wide_world: World, three_nodes: ApacheKafka, which: str
) -> None:
    crashes: list[Crash] = []
    async with busy(wide_world, 2) as scene:
        if which == "leader":
            node = await leader_of(wide_world.bootstrap_servers, wide_world.repartition_topic, 0)
        else:
            node = await coordinator_of(wide_world.bootstrap_servers, wide_world.settings.app_id)
        begins = Crash.now()
        await asyncio.to_thread(three_nodes.kill, node)
        await scene.goes_on()
        crashes.append(begins.until_now())
        await asyncio.to_thread(three_nodes.start_node, node)
        await scene.goes_on()
    await all_is_right(wide_world, scene.load.oracle, crashes=crashes, outage=True)


async def test_leaders_that_move(wide_world: World, three_nodes: ApacheKafka) -> None:
    """A node that ends in order hands over what it leads."""
    crashes: list[Crash] = []
    async with busy(wide_world, keyed=True) as scene:
        node = await leader_of(wide_world.bootstrap_servers, wide_world.topic, 0)
        begins = Crash.now()
        await asyncio.to_thread(three_nodes.stop_node, node)
        await scene.goes_on()
        assert await leader_of(wide_world.bootstrap_servers, wide_world.topic, 0) != node
        crashes.append(begins.until_now())
    await all_is_right(wide_world, scene.load.oracle, crashes=crashes, outage=True)
