"""Reading topics in tests: all of one, what comes next, offsets that a group has committed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.structs import ConsumerRecord

from tests.support.wait import wait_until_async

__all__ = ["TopicReader", "committed_offsets", "end_offsets", "open_reader", "read_topic"]

_EMPTY_FETCH_MS = 100


class TopicReader:
    """Reads a topic from its first record on, without a group; made by :func:`open_reader`."""

    def __init__(self, consumer: AIOKafkaConsumer, tps: Sequence[TopicPartition]) -> None:
        self._consumer = consumer
        self._tps = tps
        #: All that has been read so far, in order within each partition.
        self.records: list[ConsumerRecord] = []

    async def fetch(self) -> list[ConsumerRecord]:
        """Read what is there now; the new records, none after a tenth of a second without any."""
        found = [
            record
            for records in (await self._consumer.getmany(timeout_ms=_EMPTY_FETCH_MS)).values()
            for record in records
        ]
        self.records += found
        return found

    async def until(self, count: int, seconds: float = 30.0) -> list[ConsumerRecord]:
        """Read until there are so many records in all; all of them."""

        async def enough() -> bool:
            if len(self.records) < count:
                await self.fetch()
            return len(self.records) >= count

        await wait_until_async(enough, seconds, what=f"{count} records in {self._tps[0].topic}")
        return self.records

    async def ends(self, seconds: float = 30.0) -> dict[int, int]:
        """Read everything, and tell the end of each partition, markers of transactions included.

        For a reader that has read nothing yet. The end is the one that a fetch answers with, which
        is right on every broker.
        """
        ends: dict[int, int] = {}

        async def everything() -> bool:
            await self.fetch()
            for tp in self._tps:
                end = self._consumer.highwater(tp)
                if end is not None and await self._consumer.position(tp) >= end:
                    ends[tp.partition] = end
            return len(ends) == len(self._tps)

        await wait_until_async(everything, seconds, what=f"the end of {self._tps[0].topic}")
        return ends


@asynccontextmanager
async def open_reader(
    bootstrap_servers: str, topic: str, **options: Any
) -> AsyncIterator[TopicReader]:
    """A reader of an existing topic, at its beginning. The options are aiokafka's."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap_servers,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=50,
        **options,
    )
    await consumer.start()
    try:
        tps: list[TopicPartition] = []

        async def appears() -> bool:
            cluster = await consumer._client.fetch_all_metadata()
            tps[:] = [TopicPartition(topic, n) for n in cluster.partitions_for_topic(topic) or ()]
            return bool(tps)

        await wait_until_async(appears, what=f"topic {topic} exists")
        consumer.assign(tps)
        yield TopicReader(consumer, tps)
    finally:
        await consumer.stop()


async def read_topic(bootstrap_servers: str, topic: str) -> list[ConsumerRecord]:
    """Everything that is in a topic now."""
    async with open_reader(bootstrap_servers, topic) as reader:
        await reader.ends()
        return reader.records


async def end_offsets(bootstrap_servers: str, topic: str) -> dict[int, int]:
    """The offset that the next record of each partition will get."""
    async with open_reader(bootstrap_servers, topic) as reader:
        return await reader.ends()


async def committed_offsets(
    bootstrap_servers: str, group: str, topic: str, partitions: int
) -> dict[int, int]:
    """What a group has committed of a topic, by partition; those with nothing are left out."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
    await admin.start()
    try:
        offsets = await admin.list_consumer_group_offsets(
            group, partitions=[TopicPartition(topic, number) for number in range(partitions)]
        )
    finally:
        await admin.close()
    return {tp.partition: found.offset for tp, found in offsets.items() if found.offset >= 0}
