"""Reading what a worker puts out while traffic is sent, until all of it has come."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaConsumer, TopicPartition

from heartbeat_stream.local.judged_traffic import Feed
from heartbeat_stream.local.record_sender import SendError
from heartbeat_stream.settings import Settings
from heartbeat_stream.streaming.security import kafka_auth

__all__ = ["Watcher", "watching"]

_POLL_MS = 100
#: So long nothing more has come when it is taken for all.
_QUIET_S = 3.0


class Watcher:
    """Hands to a feed what comes out of a topic; made by :func:`watching`."""

    def __init__(self, consumer: AIOKafkaConsumer, feed: Feed) -> None:
        self._consumer = consumer
        self._feed = feed
        self._last_at = time.monotonic()
        self.taken = 0
        self.newest: str = ""

    async def run(self) -> None:
        """Read on, until this is cancelled."""
        while True:
            found = await self._consumer.getmany(timeout_ms=_POLL_MS)
            for records in found.values():
                for record in records:
                    headers = {name: value.decode() for name, value in record.headers}
                    place = f"{headers.get('source-partition')}-{headers.get('source-offset')}"
                    self._feed.take(record.value, record.timestamp, place)
                    self.newest = record.value.decode(errors="replace")
                self.taken += len(records)
                self._last_at = time.monotonic()

    async def until_all(self, seconds: float, on_progress: Callable[[], None]) -> None:
        """Return when as many as expected have come, and then no more; or after so long."""
        deadline = time.monotonic() + seconds
        self._last_at = time.monotonic()
        while time.monotonic() < deadline:
            on_progress()
            quiet = time.monotonic() - self._last_at >= _QUIET_S
            if self.taken >= self._feed.expected and quiet:
                return
            await asyncio.sleep(_POLL_MS / 1000)


@asynccontextmanager
async def watching(settings: Settings, feed: Feed) -> AsyncIterator[Watcher]:
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
        watcher = Watcher(consumer, feed)
        task = asyncio.create_task(watcher.run())
        yield watcher
    finally:
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
        await consumer.stop()
