"""Writing to Kafka a batch at a time, acknowledged by all in-sync replicas."""

import asyncio
import logging
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, cast

import msgspec
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, MessageSizeTooLargeError, RecordListTooLargeError

from heartbeat_stream.complaints import Complaints

__all__ = [
    "BatchProducer",
    "Header",
    "Headers",
    "OutRecord",
    "Outbox",
    "RecordRefused",
    "Span",
    "StampedRecord",
    "describe_error",
]

logger = logging.getLogger(__name__)

#: Bytes of a batch before compression. Well below the 1 MiB that brokers accept by default.
_BATCH_BYTES = 512 * 1024

_RETRY_FIRST_S = 0.1
_RETRY_MOST_S = 1.0

Header = tuple[str, bytes]
#: A tuple where there is one for each record: lists are looked at by the garbage collector for as
#: long as they live, tuples of texts and bytes once.
Headers = Sequence[Header]


class OutRecord(msgspec.Struct, gc=False):
    """A record to be written. Not a tuple with names, since that takes four times as long to make:
    there is one for every heartbeat that is forwarded and for every room in a checkpoint."""

    key: bytes | None
    value: bytes | None
    headers: Headers | None = None


class StampedRecord(OutRecord, gc=False):
    """A record that keeps a timestamp of its own, in ms. A batch is all of this kind, or none."""

    timestamp: int = 0


class Span(NamedTuple):
    """Where a batch came to stand: its first offset, how many records, and its last timestamp."""

    first_offset: int
    records: int
    timestamp: int


class RecordRefused(KafkaError):  # type: ignore[misc]
    """A single record is larger than its topic takes: trying again is of no use."""

    def __init__(self, topic: str, record: OutRecord) -> None:
        size = len(record.key or b"") + len(record.value or b"")
        super().__init__(
            f"the topic {topic} takes no record of {size} bytes: raise its max.message.bytes, and "
            "start the worker again"
        )


class BatchProducer:
    """An aiokafka producer that is only used through whole batches for one partition."""

    def __init__(self, *, client_id: str, request_timeout_ms: int, **connection: Any) -> None:
        self._producer = AIOKafkaProducer(
            client_id=client_id,
            acks="all",
            max_batch_size=_BATCH_BYTES,
            max_request_size=64 * 1024 * 1024,
            request_timeout_ms=request_timeout_ms,
            **connection,
        )
        #: Bytes of the batches that were handed over for each topic, before compression.
        self.bytes_by_topic: Counter[str] = Counter()
        self._turns: defaultdict[tuple[str, int], asyncio.Lock] = defaultdict(asyncio.Lock)

    async def start(self) -> None:
        await self._producer.start()

    async def stop(self) -> None:
        await self._producer.stop()

    async def partitions_for(self, topic: str) -> int:
        """How many partitions a topic has. Raises :class:`KafkaError` where it is unknown."""
        return len(await self._producer.partitions_for(topic))

    async def publish(
        self,
        topic: str,
        partition: int,
        records: Sequence[OutRecord],
        timestamp_ms: int | None,
    ) -> list[Span]:
        """Write records, in order, and return once the broker has acknowledged all of them.

        Raises :class:`KafkaError`: some of them may be written then, and may be once more if they
        are tried again. :class:`RecordRefused` says that a single record is too large.
        """
        futures = await self.enqueue(topic, partition, records, timestamp_ms)
        return await self.collect(topic, partition, futures, timestamp_ms)

    async def enqueue(
        self, topic: str, partition: int, records: Sequence[OutRecord], timestamp_ms: int | None
    ) -> list[tuple[Sequence[OutRecord], asyncio.Future[Any]]]:
        """Hand records to the sender, batch by batch; each with the future of its acknowledgement.

        Waits while earlier batches of the partition are being sent: in turn, since of several that
        wait at once aiokafka lets those that are overtaken time out far too early.
        """
        async with self._turns[topic, partition]:
            return await self._enqueue(topic, partition, records, timestamp_ms)

    async def _enqueue(
        self, topic: str, partition: int, records: Sequence[OutRecord], timestamp_ms: int | None
    ) -> list[tuple[Sequence[OutRecord], asyncio.Future[Any]]]:
        sent = []
        start = 0
        while start < len(records):
            batch = self._producer.create_batch()
            fill = _fill_stamped if isinstance(records[0], StampedRecord) else _fill
            end = fill(batch.append, records, start, timestamp_ms)
            self.bytes_by_topic[topic] += batch.size()
            future = await self._producer.send_batch(batch, topic, partition=partition)
            sent.append((records[start:end], future))
            start = end
        return sent

    async def collect(
        self,
        topic: str,
        partition: int,
        sent: Iterable[tuple[Sequence[OutRecord], asyncio.Future[Any]]],
        timestamp_ms: int | None,
    ) -> list[Span]:
        """Wait for the acknowledgements of :meth:`enqueue`. Raises as :meth:`publish` does.

        The spans come in the order of their offsets: what had to be split stands behind what was
        handed over after it.
        """
        spans = []
        for records, future in sent:
            try:
                metadata = await future
            except (MessageSizeTooLargeError, RecordListTooLargeError) as exc:
                if len(records) == 1:
                    raise RecordRefused(topic, records[0]) from exc
                middle = len(records) // 2
                for half in (records[:middle], records[middle:]):
                    spans += await self.publish(topic, partition, half, timestamp_ms)
            else:
                spans.append(Span(metadata.offset, len(records), timestamp_ms or 0))
        return sorted(spans)


def _fill(
    append: Callable[..., Any], records: Sequence[OutRecord], start: int, timestamp_ms: int | None
) -> int:
    """Append records until a batch is full; the first one that found no place in it."""
    end = start
    for record in records[start:]:
        if (
            append(
                timestamp=timestamp_ms,
                key=record.key,
                value=record.value,
                headers=record.headers and list(record.headers),  # aiokafka takes nothing else
            )
            is None
        ):
            break
        end += 1
    return end


def _fill_stamped(
    append: Callable[..., Any], records: Sequence[OutRecord], start: int, timestamp_ms: int | None
) -> int:
    """The same with each record's own timestamp."""
    end = start
    for record in cast("Sequence[StampedRecord]", records[start:]):
        if (
            append(
                timestamp=record.timestamp,
                key=record.key,
                value=record.value,
                headers=record.headers and list(record.headers),  # aiokafka takes nothing else
            )
            is None
        ):
            break
        end += 1
    return end


class Outbox:
    """Records on their way to Kafka that a later acknowledgement of source offsets depends on.

    Each is tried until the broker has it, with growing pauses; so a source offset is committed
    late rather than with something missing. What a topic will never take ends the worker.
    """

    def __init__(self, producer: BatchProducer, most_in_flight: int = 64) -> None:
        self._producer = producer
        self._tasks: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(most_in_flight)
        self._defect: BaseException | None = None
        self.retries = 0
        self._complaints = Complaints(logger)

    async def put(
        self,
        topic: str,
        partition: int,
        records: Sequence[OutRecord],
        timestamp_ms: int | None = None,
        shrink: Callable[[OutRecord], OutRecord] | None = None,
    ) -> None:
        """Send records of one partition. Waits only while too many others are under way.

        ``shrink`` makes a smaller one of a record that the broker refuses as too large.
        """
        await self._room.acquire()
        task = asyncio.create_task(self._deliver(topic, partition, records, timestamp_ms, shrink))
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._room.release()
        if not task.cancelled() and (exc := task.exception()) is not None:
            self._defect = exc

    async def _deliver(
        self,
        topic: str,
        partition: int,
        records: Sequence[OutRecord],
        timestamp_ms: int | None,
        shrink: Callable[[OutRecord], OutRecord] | None,
    ) -> None:
        pause = _RETRY_FIRST_S
        while True:
            try:
                await self._producer.publish(topic, partition, records, timestamp_ms)
                return
            except RecordRefused:
                smaller = [shrink(record) for record in records] if shrink is not None else records
                if smaller == records:
                    raise
                records = smaller
                continue
            except KafkaError as exc:
                self._complain(topic, exc)
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, _RETRY_MOST_S)

    def _complain(self, topic: str, exc: KafkaError) -> None:
        self.retries += 1
        self._complaints.warning(
            "cannot write to topic %s (%s): trying again", topic, describe_error(exc)
        )

    async def settled(self) -> None:
        """Return when everything that was put before this call is acknowledged."""
        waiting = list(self._tasks)
        if waiting:
            await asyncio.wait(waiting)
        if self._defect is not None:
            # Time will not mend it. Whatever it is, nothing may be acknowledged on top of it.
            raise self._defect

    @property
    def in_flight(self) -> int:
        return len(self._tasks)

    async def stop(self) -> None:
        """Give up what is still under way: the offsets that depend on it were not committed."""
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks))


def describe_error(exc: KafkaError) -> str:
    """An error of a broker in a few words."""
    return f"{type(exc).__name__}: {exc}" if str(exc) else type(exc).__name__
