"""Exactly once into topics: what a partition has caused becomes visible with its offset, or not.

Each partition that is read has a transactional producer of its own, named after it. To open one
ends whatever another worker had begun under that name, and fences it: so a worker that was frozen
beyond its session puts out nothing any more. Opened before the partition's changelog and its
committed offset are read, it makes sure that both are final.

Relied upon in aiokafka 0.14: a producer with a transactional id fences in ``start``, and takes
whole batches in a transaction, too. ``tests/kafka/test_transactions.py`` breaks where that changes.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from aiokafka.errors import KafkaError, ProducerFenced
from aiokafka.structs import OffsetAndMetadata, TopicPartition
from faust.types import TP

from heartbeat_stream.streaming.producer import BatchProducer, OutRecord, Span

__all__ = ["Parcel", "Transaction", "TransactionalProducer", "Transactions"]

logger = logging.getLogger(__name__)

_ABORT_S: Final = 5.0
_CLOSE_S: Final = 3.0
_TRY_S: Final = 20.0

#: Records for one partition of a topic.
Parcel = tuple[str, int, Sequence[OutRecord]]


@dataclass
class Transaction:
    """What belongs together: records in the order in which they go to their topics, and the offset
    of the partition that they come of, behind the last record that was worked on."""

    tp: TP
    parcels: list[Parcel] = field(default_factory=list)
    changelog: list[Parcel] = field(default_factory=list)
    offset: int | None = None


class TransactionalProducer(BatchProducer):
    """A producer of batches, all within transactions."""

    async def begin(self) -> None:
        await self._producer.begin_transaction()

    async def commit(self, tp: TP, offset: int | None, group: str) -> None:
        """Make it visible, with an offset of the group."""
        if offset is not None:
            offsets = {TopicPartition(tp.topic, tp.partition): OffsetAndMetadata(offset, "")}
            await self._producer.send_offsets_to_transaction(offsets, group)
        await self._producer.commit_transaction()

    async def abort(self) -> None:
        await self._producer.abort_transaction()


class Transactions:
    """The producers of the partitions that are ours."""

    def __init__(
        self,
        make: Callable[[str], TransactionalProducer],
        group: str,
        surely_ours: Callable[[], bool],
    ) -> None:
        """``make`` makes a producer with this transactional id. ``surely_ours`` tells whether no
        other worker can have our partitions by now."""
        self._make = make
        self._group = group
        self._surely_ours = surely_ours
        self._producers: dict[TP, TransactionalProducer] = {}
        self._fenced: set[TP] = set()

    async def own(self, tps: set[TP]) -> None:
        """Fence whoever had these partitions before, ourselves included; give up all others.

        Nothing may be under way. Raises KafkaError.
        """
        await self.close()
        self._fenced.clear()
        await asyncio.gather(*(self._open(tp) for tp in tps))

    async def can(self) -> str | None:
        """Why there are no transactions for us on these brokers; None if there are."""
        producer = self._make(f"{self._group}-try")
        try:
            async with asyncio.timeout(_TRY_S):
                await producer.start()
        except (KafkaError, TimeoutError) as exc:
            return repr(exc)
        finally:
            await _close(producer)
        return None

    async def _open(self, tp: TP) -> TransactionalProducer:
        producer = self._make(f"{self._group}-{tp.topic}-{tp.partition}")
        try:
            await producer.start()
        except BaseException:  # cancelled, too: nobody else would ever close this one
            await _close(producer)
            raise
        self._producers[tp] = producer
        return producer

    async def _open_again(self, tp: TP) -> TransactionalProducer:
        """After an error that left the one before unusable. Never after being fenced, nor where
        this could fence a worker that has taken over."""
        if tp in self._fenced or not self._surely_ours():
            raise ProducerFenced
        return await self._open(tp)

    async def run(
        self, transaction: Transaction, timestamp_ms: int
    ) -> list[tuple[Parcel, list[Span]]]:
        """Write it all and commit; answer where the changelog's records stand.

        Raises KafkaError: nothing of it is visible then. ``ProducerFenced`` among them: another
        worker has the partition. If it is cancelled, it may become visible still; the partition
        has to be owned anew before anything else is done with it.
        """
        tp = transaction.tp
        producer = self._producers.get(tp) or await self._open_again(tp)
        try:
            await producer.begin()
            for topic, partition, records in transaction.parcels:
                await producer.publish(topic, partition, records, None)
            spans = []
            for parcel in transaction.changelog:
                topic, partition, records = parcel
                spans.append(
                    (parcel, await producer.publish(topic, partition, records, timestamp_ms))
                )
            await producer.commit(tp, transaction.offset, self._group)
        except BaseException as exc:
            await self._end(tp, producer, fenced=isinstance(exc, ProducerFenced))
            raise
        return spans

    async def _end(self, tp: TP, producer: TransactionalProducer, *, fenced: bool) -> None:
        """Abort, or leave that to the next one of this name."""
        try:
            if fenced:
                self._fenced.add(tp)
            else:
                async with asyncio.timeout(_ABORT_S):
                    await producer.abort()
                return
        except (KafkaError, TimeoutError, AssertionError) as exc:
            logger.warning("a transaction of %s[%d] was not ended: %r", *tp, exc)
        self._producers.pop(tp, None)
        await _close(producer)

    async def close(self) -> None:
        """Close all producers."""
        producers, self._producers = list(self._producers.values()), {}
        await asyncio.gather(*map(_close, producers))


async def _close(producer: TransactionalProducer) -> None:
    with suppress(KafkaError, TimeoutError):
        async with asyncio.timeout(_CLOSE_S):
            await producer.stop()
