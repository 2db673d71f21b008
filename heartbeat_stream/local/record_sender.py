"""Sending made-up records to a topic in large batches: about a million a second."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError, KafkaError, KafkaTimeoutError

from heartbeat_stream.core.partition import partition_for

Record = tuple[bytes | None, bytes]
"""Key and value."""

_BATCH_BYTES = 256 * 1024
_GIVE_UP_S = 3.0


class SendError(Exception):
    """The topic cannot be written to. The message is one line that says what to do."""


class RecordSender:
    """Writes records to the partitions of one topic; made by :func:`open_sender`."""

    def __init__(self, producer: AIOKafkaProducer, topic: str, partitions: int) -> None:
        self._producer = producer
        self._topic = topic
        self._partitions = partitions
        self._next_partition = 0
        self._partition_of: dict[bytes, int] = {}
        self._unacknowledged: set[asyncio.Future[Any]] = set()

    async def send(self, records: Sequence[Record], timestamp_ms: int) -> None:
        """Hand records over: those with a key to its partition, the others to all in turn.

        Waits while the broker is slower. Raises :class:`KafkaError` when it has not acknowledged
        something, which may also be of an earlier call, for aiokafka's request timeout of 40 s.
        """
        for partition, share in self._shares(records):
            await self._send_share(partition, share, timestamp_ms)
        await self._collect(timeout=0)

    async def send_each(self, records: Sequence[tuple[Record, int]]) -> None:
        """The same for records with a key and a timestamp each, in their order."""
        shares: dict[int, list[tuple[Record, int]]] = {}
        for record, timestamp_ms in records:
            partition = self._partition_for(record[0] or b"")
            shares.setdefault(partition, []).append((record, timestamp_ms))
        for partition, share in shares.items():
            await self._send_stamped(partition, share)
        await self._collect(timeout=0)

    async def _send_stamped(self, partition: int, share: Sequence[tuple[Record, int]]) -> None:
        rest = iter(share)
        stamped = next(rest, None)
        while stamped is not None:
            batch = self._producer.create_batch()
            while stamped is not None and batch.append(
                timestamp=stamped[1], key=stamped[0][0], value=stamped[0][1]
            ):
                stamped = next(rest, None)
            await self._hand_over(batch, partition)

    async def flush(self) -> None:
        """Return once everything is acknowledged. Raises as :meth:`send` does."""
        await self._collect(timeout=None)

    def _shares(self, records: Sequence[Record]) -> Iterable[tuple[int, Sequence[Record]]]:
        shares: dict[int, list[Record]] = {}
        unkeyed = []
        for record in records:
            key = record[0]
            if key is None:
                unkeyed.append(record)
            else:
                shares.setdefault(self._partition_for(key), []).append(record)
        for start in range(min(self._partitions, len(unkeyed))):
            partition = (self._next_partition + start) % self._partitions
            shares.setdefault(partition, []).extend(unkeyed[start :: self._partitions])
        self._next_partition = (self._next_partition + len(unkeyed)) % self._partitions
        return shares.items()

    def _partition_for(self, key: bytes) -> int:
        partition = self._partition_of.get(key)
        if partition is None:
            partition = self._partition_of[key] = partition_for(key, self._partitions)
        return partition

    async def _send_share(
        self, partition: int, records: Sequence[Record], timestamp_ms: int
    ) -> None:
        rest = iter(records)
        record = next(rest, None)
        while record is not None:
            batch = self._producer.create_batch()
            while record is not None and batch.append(
                timestamp=timestamp_ms, key=record[0], value=record[1]
            ):
                record = next(rest, None)
            await self._hand_over(batch, partition)

    async def _hand_over(self, batch: Any, partition: int) -> None:
        future = await self._producer.send_batch(batch, self._topic, partition=partition)
        # Of several failures only one is raised: the others count as seen, too.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._unacknowledged.add(future)

    async def _collect(self, timeout: float | None) -> None:
        if self._unacknowledged:
            done, self._unacknowledged = await asyncio.wait(self._unacknowledged, timeout=timeout)
            for future in done:
                future.result()


@asynccontextmanager
async def open_sender(
    brokers: str, topic: str, security: Mapping[str, Any]
) -> AsyncIterator[RecordSender]:
    """A sender for an existing topic, which is never created by this.

    On leaving, what was handed over is sent, within a bound. Raises :class:`SendError` where there
    is no broker or no topic, and for a :class:`KafkaError` that the body lets pass.
    """
    producer = AIOKafkaProducer(
        bootstrap_servers=brokers, acks="all", max_batch_size=_BATCH_BYTES, **security
    )
    try:
        yield RecordSender(producer, topic, await _connect(producer, brokers, topic))
    except KafkaError as error:
        why = " ".join(str(error).split())[:200]
        if error.retriable or isinstance(error, KafkaTimeoutError):
            why = (
                "not acknowledged in time: see whether the broker is up and all of the topic's "
                f"partitions have a leader ({why})"
            )
        raise SendError(f"cannot write to topic {topic} at {brokers}: {why}") from error
    finally:
        await _close(producer)


async def _connect(producer: AIOKafkaProducer, brokers: str, topic: str) -> int:
    """Start the producer; the topic's number of partitions."""
    try:
        await producer.start()
    except KafkaConnectionError as error:
        raise SendError(
            f"no broker answers at {brokers}: start one, or set HEARTBEAT_BROKERS and what it asks "
            "for of TLS and SASL"
        ) from error
    # Asking for all topics, since asking for one may create it.
    partitions = (await producer.client.fetch_all_metadata()).partitions_for_topic(topic)
    if not partitions:
        raise SendError(
            f"there is no topic {topic} at {brokers}, or no right to see it: "
            "`heartbeat-stream init` creates it"
        )
    return len(partitions)


async def _close(producer: AIOKafkaProducer) -> None:
    """Send the rest and disconnect, but don't wait for long for a broker that is away."""
    try:
        async with asyncio.timeout(_GIVE_UP_S):
            await producer.stop()
    except TimeoutError:
        await producer.client.close()
