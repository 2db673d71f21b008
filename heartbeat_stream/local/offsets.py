"""What a consumer group has committed, and where partitions end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.structs import TopicPartition

__all__ = ["GroupOffsets", "end_offsets", "open_group_offsets"]


class GroupOffsets:
    """Looks at one group's committed offsets without being a member; see open_group_offsets()."""

    def __init__(self, admin: AIOKafkaAdminClient, group: str) -> None:
        self._admin = admin
        self._group = group

    async def committed(self, topic: str, partitions: int) -> dict[TopicPartition, int]:
        """The next offset to read of each partition; 0 where nothing is committed."""
        tps = [TopicPartition(topic, number) for number in range(partitions)]
        found = await self._admin.list_consumer_group_offsets(self._group, partitions=tps)
        return {tp: max(0, found[tp].offset) if tp in found else 0 for tp in tps}


@asynccontextmanager
async def open_group_offsets(brokers: str, group: str) -> AsyncIterator[GroupOffsets]:
    admin = AIOKafkaAdminClient(bootstrap_servers=brokers)
    await admin.start()
    try:
        yield GroupOffsets(admin, group)
    finally:
        await admin.close()


async def end_offsets(
    brokers: str, committed: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Where partitions end now, from a fetch in front of what was committed of each.

    The high watermark of a fetch is right on every broker; the offset that one lists is not. A
    partition of which nothing is committed must hold a record, or it counts as empty.
    """
    consumer = AIOKafkaConsumer(
        bootstrap_servers=brokers, enable_auto_commit=False, max_partition_fetch_bytes=4096
    )
    await consumer.start()
    try:
        consumer.assign(list(committed))
        for tp, offset in committed.items():
            consumer.seek(tp, max(0, offset - 1))
        ends: dict[TopicPartition, int] = {}
        silent = 0
        while len(ends) < len(committed) and silent < 3:
            fetched = await consumer.getmany(*_missing(committed, ends), timeout_ms=500)
            silent = 0 if fetched else silent + 1
            for tp in fetched:
                ends[tp] = consumer.highwater(tp) or 0
        return {tp: ends.get(tp, offset) for tp, offset in committed.items()}
    finally:
        await consumer.stop()


def _missing(
    all_of: Iterable[TopicPartition], seen: Mapping[TopicPartition, int]
) -> list[TopicPartition]:
    return [tp for tp in all_of if tp not in seen]
