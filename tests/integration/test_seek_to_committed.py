"""Where a partition is read from after a rebalance, whatever had been fetched before."""

from __future__ import annotations

import uuid
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition

from heartbeat_stream.core.heartbeat import Heartbeat
from heartbeat_stream.streaming.consumer_thread import PositionThread
from tests.support.wait import wait_until_async
from tests.support.world import World


class Thread(PositionThread):
    """Its code around a consumer of the test, in the test's own loop."""

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self._consumer = consumer

    async def call_thread(self, fun: Any, *args: Any, **kwargs: Any) -> Any:
        return await fun(*args, **kwargs)


async def test_what_was_fetched_and_dropped_comes_again(world: World) -> None:
    """Of partitions with a committed offset and without one."""
    await world.prepare()
    await world.send([Heartbeat(7, f"room-{number}", number, "d", 1) for number in range(40)])
    consumer = AIOKafkaConsumer(
        world.topic,
        bootstrap_servers=world.bootstrap_servers,
        group_id=f"g{uuid.uuid4().hex[:12]}",
        session_timeout_ms=world.cluster.session_timeout_ms,
        heartbeat_interval_ms=500,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    await consumer.start()
    try:
        fetched: dict[TopicPartition, int] = {}

        async def everything() -> bool:
            for tp, records in (await consumer.getmany(timeout_ms=100)).items():
                fetched[tp] = fetched.get(tp, 0) + len(records)
            return sum(fetched.values()) == 40

        await wait_until_async(everything, 30, what="40 records fetched")
        tps = sorted(fetched)
        assert len(tps) == world.settings.partitions
        await consumer.commit({tps[0]: 2})

        await Thread(consumer).seek_to_committed()

        positions = [await consumer.position(tp) for tp in tps]
        assert positions == [2] + [0] * (len(tps) - 1)
    finally:
        await consumer.stop()
