"""Traffic that goes into a topic and comes out of another one, which is read meanwhile."""

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from aiokafka import AIOKafkaConsumer, TopicPartition

from heartbeat_stream.local.judged_traffic import Outlet, Truth, Watcher
from heartbeat_stream.local.record_sender import Record, RecordSender, SendError, open_sender
from heartbeat_stream.settings import Settings
from heartbeat_stream.streaming.security import kafka_auth

__all__ = ["RecordOutlet", "TopicFeed", "open_outlet"]

_POLL_MS = 100


class RecordSource(ABC):
    """What makes records."""

    @abstractmethod
    def generate(self, now_ms: int, n: int) -> list[tuple[Record, int]]:
        """The next records, ``n`` or a few more, with their timestamps."""


class TopicFeed(RecordSource):
    """A feed of records whose outcome is a topic."""

    counts: Counter[str]

    @abstractmethod
    def topics(self, settings: Settings) -> tuple[str, str]:
        """Where to send it, and where what is new comes out."""

    @abstractmethod
    def take(self, value: bytes, timestamp_ms: int, place: str) -> None:
        """A record has come out, which stood at this place of the source."""

    @property
    @abstractmethod
    def expected(self) -> int:
        """How many should come out."""

    @abstractmethod
    def truth(self) -> Truth:
        """What became of all that was made."""

    def outlet(self, settings: Settings) -> AbstractAsyncContextManager[Outlet]:
        return open_outlet(settings, self.topics(settings)[0], self)

    def watching(self, settings: Settings) -> AbstractAsyncContextManager[Watcher]:
        return _watching(settings, self)


class RecordOutlet:
    """Sends what a source makes to a topic."""

    def __init__(self, source: RecordSource, sender: RecordSender) -> None:
        self._source = source
        self._sender = sender

    async def send(self, now_ms: int, n: int) -> int:
        records = self._source.generate(now_ms, n)
        await self._sender.send_each(records)
        return len(records)

    async def flush(self) -> None:
        await self._sender.flush()


@asynccontextmanager
async def open_outlet(
    settings: Settings, topic: str, source: RecordSource
) -> AsyncIterator[RecordOutlet]:
    """The way into a topic. Raises SendError where the broker or the topic is missing."""
    async with open_sender(",".join(settings.brokers), topic, kafka_auth(settings)) as sender:
        yield RecordOutlet(source, sender)


class _TopicWatcher(Watcher):
    """Reads a topic."""

    def __init__(self, consumer: AIOKafkaConsumer, feed: TopicFeed) -> None:
        super().__init__()
        self._consumer = consumer
        self._feed = feed

    async def run(self) -> None:
        while True:
            found = await self._consumer.getmany(timeout_ms=_POLL_MS)
            for records in found.values():
                for record in records:
                    headers = {name: value.decode() for name, value in record.headers}
                    place = f"{headers.get('source-partition')}-{headers.get('source-offset')}"
                    self._feed.take(record.value, record.timestamp, place)
                    self.newest = record.value.decode(errors="replace")
                self._took(len(records))


@asynccontextmanager
async def _watching(settings: Settings, feed: TopicFeed) -> AsyncIterator[Watcher]:
    """Watch the output topic of a feed from its end on. Raises SendError where there is none."""
    _, topic = feed.topics(settings)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=list(settings.brokers),
        enable_auto_commit=False,
        isolation_level="read_committed",
        fetch_max_wait_ms=_POLL_MS,
        **kafka_auth(settings),
    )
    await consumer.start()
    task = None
    try:
        cluster = await consumer._client.fetch_all_metadata()  # noqa: SLF001
        tps = [TopicPartition(topic, one) for one in cluster.partitions_for_topic(topic) or ()]
        if not tps:
            raise SendError(f"there is no topic {topic}: `heartbeat-stream init` creates it")
        consumer.assign(tps)
        await consumer.seek_to_end(*tps)
        for tp in tps:
            await consumer.position(tp)
        watcher = _TopicWatcher(consumer, feed)
        task = asyncio.create_task(watcher.run())
        yield watcher
    finally:
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
        await consumer.stop()
