"""What the saving is measured against: a write of each room in each window of 5 s.

Counted from the topic itself, by a reader beside the worker that belongs to no group.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.structs import ConsumerRecord

from heartbeat_stream.core.heartbeat import Bounds, Rejected, canonical_key_matches, decode
from heartbeat_stream.settings import Settings

__all__ = ["WINDOW_MS", "Baseline", "follow_topic"]

WINDOW_MS = 5_000

_PAUSE_S = 0.25
_STOP_S = 3.0
#: More would hold up the event loop for longer than about 10 ms.
_SLICE = 4_000


class Baseline:
    """Counts the pairs of a room and a window in which a heartbeat of it arrived.

    Windows are counted from the first record on: so none of them is a piece at the beginning.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._first_ms = 0
        self._windows: dict[tuple[int, str], int] = {}  # of each room a bit for each window
        self.records = 0
        self.writes = 0

    def take(self, records: Iterable[ConsumerRecord], now_ms: int) -> None:
        """Count records of the topic; `now_ms` decides which of them lie in the future."""
        settings = self._settings
        bounds = Bounds(settings.min_ts_ms, now_ms + settings.max_future_ms)
        for record in records:
            self.records += 1
            if record.value is None:
                continue
            try:
                heartbeat = decode(record.value, bounds)
            except Rejected:
                continue
            key = record.key
            if settings.source_keyed and not (key and canonical_key_matches(key, heartbeat)):
                continue
            self._first_ms = self._first_ms or record.timestamp
            # Partitions are read in any order: one may begin before another one's first record.
            window = max(0, record.timestamp - self._first_ms) // WINDOW_MS
            room = (heartbeat.hotel_id, heartbeat.room_id)
            seen = self._windows.get(room, 0)
            if not seen >> window & 1:
                self._windows[room] = seen | 1 << window
                self.writes += 1


class TopicFollower:
    """Feeds a baseline with a topic; made by :func:`follow_topic`."""

    def __init__(
        self, consumer: AIOKafkaConsumer, partitions: list[TopicPartition], baseline: Baseline
    ) -> None:
        self._consumer = consumer
        self._partitions = partitions
        self._baseline = baseline
        self._task = asyncio.create_task(self._run())

    def check(self) -> None:
        """Raises what has ended the following, a KafkaError say."""
        if self._task.done():
            self._task.result()

    async def stop(self) -> None:
        """End it, within a bound. Never raises."""
        self._task.cancel()
        # Waited for from outside: where the broker is gone, aiokafka's stop() ends with the
        # cancellation of a task of its own, which is none of ours.
        stopping = asyncio.create_task(self._consumer.stop())
        await asyncio.wait({self._task, stopping}, timeout=_STOP_S)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(0 if await self._fetch() else _PAUSE_S)

    async def _fetch(self) -> bool:
        fetched = await self._consumer.getmany(timeout_ms=0, max_records=_SLICE)
        for records in fetched.values():
            self._baseline.take(records, time.time_ns() // 1_000_000)
        return bool(fetched)

    @property
    def end(self) -> int:
        """How many records the topic has, as far as is known."""
        return sum(self._consumer.highwater(tp) or 0 for tp in self._partitions)


@asynccontextmanager
async def follow_topic(settings: Settings, baseline: Baseline) -> AsyncIterator[TopicFollower]:
    """Read a new topic from its first record on. Raises KafkaError where there is none."""
    consumer = AIOKafkaConsumer(bootstrap_servers=list(settings.brokers), enable_auto_commit=False)
    await consumer.start()
    try:
        await consumer.topics()
        numbers = sorted(consumer.partitions_for_topic(settings.topic) or ())
        partitions = [TopicPartition(settings.topic, number) for number in numbers]
        consumer.assign(partitions)
        for tp in partitions:
            consumer.seek(tp, 0)
    except BaseException:  # cancelled, too: an open consumer outlives nobody
        await consumer.stop()
        raise
    follower = TopicFollower(consumer, partitions, baseline)
    try:
        yield follower
    finally:
        await follower.stop()
