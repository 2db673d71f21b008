"""Records to Kafka: what comes while a partition's batch is under way goes together in the next.

Nothing is tried again here: a report that Kafka has not taken goes to the spool, and from there
comes again.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from aiokafka.errors import KafkaError

from heartbeat_stream.complaints import Complaints
from heartbeat_stream.streaming.producer import BatchProducer, OutRecord, describe_error

__all__ = ["NotSent", "Sender"]

logger = logging.getLogger(__name__)

#: Records of a batch at most; a larger list goes in several.
_BATCH_RECORDS: Final = 4_000
#: After a failure, reports go to the spool at once for so long; then one tries Kafka again.
_PAUSE_S: Final = 1.0


class NotSent(Exception):
    """Kafka has not acknowledged it. It may have it all the same."""


@dataclass
class _Lane:
    waiting: list[tuple[Sequence[OutRecord], "asyncio.Future[None]"]] = field(default_factory=list)
    task: "asyncio.Task[None] | None" = None


class Sender:
    """The way to the partitions of a few topics."""

    def __init__(self, producer: BatchProducer, topics: Sequence[str], most_bytes: int) -> None:
        """``most_bytes``: of the records under way, beyond which no more are taken."""
        self._producer = producer
        self._topics = topics
        self._most_bytes = most_bytes
        self._lanes: dict[tuple[str, int], _Lane] = {}
        self._bytes = 0
        self._failed_at: float | None = None
        self._started = False
        self._complaints = Complaints(logger)
        self.partitions: dict[str, int] = {}

    async def connect(self) -> None:
        """Find the brokers and the topics. Raises :class:`KafkaError`; may be called again."""
        if not self._started:
            await self._producer.start()
            self._started = True
        for topic in self._topics:
            self.partitions[topic] = await self._producer.partitions_for(topic)

    @property
    def ready(self) -> bool:
        """Whether it is worth trying: the topics are known, and no failure is fresh."""
        if len(self.partitions) < len(self._topics) or self._bytes > self._most_bytes:
            return False
        return self._failed_at is None or self._now() - self._failed_at >= _PAUSE_S

    @property
    def connected(self) -> bool:
        """Whether Kafka took what was sent last."""
        return len(self.partitions) == len(self._topics) and self._failed_at is None

    def send(
        self, topic: str, partition: int, records: Sequence[OutRecord]
    ) -> "asyncio.Future[None]":
        """Hand over records of one partition. The future ends with Kafka's acknowledgement of all,
        or with :class:`NotSent`."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        lane = self._lanes.setdefault((topic, partition), _Lane())
        lane.waiting.append((records, future))
        self._bytes += _size(records)
        if lane.task is None:
            lane.task = asyncio.create_task(self._run(topic, partition, lane))
        return future

    async def _run(self, topic: str, partition: int, lane: _Lane) -> None:
        while lane.waiting:
            together = _take(lane.waiting)
            records = [record for some, _ in together for record in some]
            error: NotSent | None = None
            try:
                await self._producer.publish(topic, partition, records, None)
                self._failed_at = None
            except KafkaError as exc:
                self._failed_at = self._now()
                self._complaints.warning(
                    "cannot write to topic %s (%s): reports go to the spool",
                    topic,
                    describe_error(exc),
                )
                error = NotSent(describe_error(exc))
            self._bytes -= _size(records)
            for _, future in together:
                if future.done():
                    continue
                if error is None:
                    future.set_result(None)
                else:
                    future.set_exception(error)
                    future.exception()  # nobody may be waiting any more
        lane.task = None

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    async def stop(self) -> None:
        """Give up what is under way."""
        tasks = [lane.task for lane in self._lanes.values() if lane.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._producer.stop()


def _take(
    waiting: list[tuple[Sequence[OutRecord], "asyncio.Future[None]"]],
) -> list[tuple[Sequence[OutRecord], "asyncio.Future[None]"]]:
    count = records = 0
    while count < len(waiting) and (not count or records < _BATCH_RECORDS):
        records += len(waiting[count][0])
        count += 1
    taken = waiting[:count]
    del waiting[:count]
    return taken


def _size(records: Sequence[OutRecord]) -> int:
    return sum(len(record.value or b"") for record in records)
