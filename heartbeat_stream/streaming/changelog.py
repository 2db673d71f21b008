"""Bringing a local copy of a changelog partition up to date.

Versions decide, not the order of the records: where a record is older than what is known already,
the known one stays, and its key is reported as overtaken, so that the next checkpoint writes it
once more. Otherwise compaction, which keeps the *last* record of a key, would lose it in time.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import chain
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import OffsetOutOfRangeError
from aiokafka.structs import TopicPartition

from heartbeat_stream.streaming.fetching import FetchedRecord, fetch_raw_records
from heartbeat_stream.streaming.store import News, PartitionStore, Position

__all__ = ["VERSION_HEADER", "ChangelogReader", "apply_records"]

logger = logging.getLogger(__name__)

#: On a tombstone: the version that it removes, as decimal text. A greater one survives it.
VERSION_HEADER = "version"

#: Records handled between two looks at the event loop: a few milliseconds.
_SLICE = 2000
_MOST_BATCHES = 100

Version = Callable[[bytes], int]


def apply_records(
    store: PartitionStore, records: Sequence[FetchedRecord], version: Version
) -> None:
    """Merge records of a changelog into its local copy, and move its position behind them.

    The store's news tell of it. What a later record puts right again does not count as overtaken:
    so it is with batches of our own that stand in the changelog twice.
    """
    known: dict[bytes, bytes | None] = {}
    overtaken = store.news.overtaken
    keys = list({record.key for record in records if record.key is not None})
    for known_key, known_value in zip(keys, store.get_many(keys), strict=True):
        if known_value is not None:
            known[known_key] = known_value
    changes: dict[bytes, bytes | None] = {}
    for record in records:
        key, value = record.key, record.value
        if key is None:
            continue
        current = known.get(key)
        if current is not None and not _replaces(record, version(current), version):
            if value is None or version(value) < version(current):
                overtaken.add(key)
            elif value == current:
                overtaken.discard(key)
            continue
        if current is None and value is None:
            continue  # it is gone already
        known[key] = changes[key] = value
        overtaken.discard(key)
    last = records[-1]
    first = store.position.first if store.position is not None else store.log_start
    store.write(list(changes.items()), Position(last.offset, last.timestamp, first))
    store.news.records += len(records)
    store.news.changes += len(changes)


def _replaces(record: FetchedRecord, current: int, version: Version) -> bool:
    if record.value is not None:
        return version(record.value) > current
    for name, value in record.headers:
        if name == VERSION_HEADER:
            return value is None or int(value) >= current
    return True


class ChangelogReader:
    """A consumer without a group, for reading changelog partitions to their end."""

    def __init__(
        self,
        connection: dict[str, Any],
        *,
        trusted_ms: int | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """``trusted_ms``: what has left a table can be read in the changelog for so long at least.

        A copy that was left behind longer ago may hold what everybody else was told to forget; so
        it is made again from the changelog. None: no copy is that old.
        """
        self._connection = connection
        self._trusted_ms = trusted_ms
        self._now_ms = now_ms

    async def catch_up(
        self,
        stores: dict[TopicPartition, tuple[PartitionStore, Version]],
        on_progress: Callable[[int], None] = lambda records: None,
    ) -> dict[TopicPartition, int]:
        """Bring the copies of these partitions up to date; answer where each changelog ends.

        That is the offset that the next record gets. What was read stands in the stores' news.
        Raises :class:`aiokafka.errors.KafkaError` and ``StoreError``. May be cancelled at any
        time: a copy is then merely further behind.
        """
        if not stores:
            # aiokafka raises CancelledError where a consumer is stopped as soon as it is started.
            return {}
        async with self._consumer(list(stores)) as consumer:
            oldest = None if self._trusted_ms is None else self._now_ms() - self._trusted_ms
            reading = {
                tp: _Reading(tp, store, version, oldest) for tp, (store, version) in stores.items()
            }
            first = await self._seek(consumer, reading)
            open_ones = set(reading)
            while open_ones:
                try:
                    fetched = await consumer.getmany(
                        *open_ones, timeout_ms=200, max_records=_MOST_BATCHES
                    )
                except OffsetOutOfRangeError as exc:
                    # Its records were deleted between the look at the offsets and the fetch.
                    await consumer.seek_to_beginning(*(tp for tp in exc.args[0] if tp in open_ones))
                    continue
                for tp, batches in fetched.items():
                    records = list(chain.from_iterable(batches))
                    for start in range(0, len(records), _SLICE):
                        if not reading[tp].take(records[start : start + _SLICE]):
                            consumer.seek(tp, first[tp])
                            break
                        await asyncio.sleep(0)
                    on_progress(reading[tp].take_count())
                for tp in list(open_ones):
                    # The high watermark comes with every answer to a fetch. Unlike the offsets
                    # that a broker lists, it is right on every broker.
                    end = consumer.highwater(tp)
                    if end is None or await consumer.position(tp) < end:
                        continue
                    if reading[tp].finish(end):
                        open_ones.discard(tp)
                        consumer.pause(tp)
                    else:
                        consumer.seek(tp, first[tp])
            return {tp: one.end for tp, one in reading.items()}

    @contextlib.asynccontextmanager
    async def _consumer(self, tps: list[TopicPartition]) -> AsyncIterator[AIOKafkaConsumer]:
        consumer = AIOKafkaConsumer(
            enable_auto_commit=False,
            auto_offset_reset="none",
            isolation_level="read_committed",
            fetch_max_wait_ms=50,
            max_partition_fetch_bytes=4 * 1024 * 1024,
            **self._connection,
        )
        await consumer.start()
        try:
            fetch_raw_records(consumer)
            consumer.assign(tps)
            yield consumer
        finally:
            await consumer.stop()

    async def _seek(
        self, consumer: AIOKafkaConsumer, reading: dict[TopicPartition, "_Reading"]
    ) -> dict[TopicPartition, int]:
        tps = list(reading)
        first: dict[TopicPartition, int] = await consumer.beginning_offsets(tps)
        listed_end = await consumer.end_offsets(tps)
        for tp, one in reading.items():
            one.begin(first[tp])
            position = one.store.position
            start = first[tp]
            if position is not None:
                # The record at the position itself is read again, where it is still there: it
                # tells whether this is still the changelog that the copy was made from.
                start = max(start, min(position.offset, listed_end[tp]))
            consumer.seek(tp, start)
        return first


class _Reading:
    """The state of reading one partition."""

    def __init__(
        self, tp: TopicPartition, store: PartitionStore, version: Version, oldest: int | None
    ) -> None:
        self.tp = tp
        self.store = store
        self.version = version
        self.end = 0
        self._taken = 0
        self._check: Position | None = store.position
        #: Where the copy ended, if that is too long ago for it to have been told everything.
        self._stale: Position | None = None
        if store.position is not None and oldest is not None:
            self._stale = store.position if store.position.timestamp < oldest else None

    def begin(self, first: int) -> None:
        """Told where the changelog begins, before anything is taken."""
        self.store.log_start = first
        position = self.store.position
        if position is not None and first > position.first:
            self.store.news.republish = True
            logger.warning(
                "the changelog %s[%d] has lost records, or was to be filled again: what the local "
                "copy holds is written to it again",
                self.tp.topic,
                self.tp.partition,
            )

    def take(self, records: list[FetchedRecord]) -> bool:
        """Merge records; False if the reading must start again from the first one."""
        check = self._check
        if check is not None and records[-1].offset >= check.offset:
            self._check = None
            for record in records:
                if record.offset == check.offset and record.timestamp != check.timestamp:
                    self._recreated("it holds another record where the local copy ends")
                    return False
            records = [record for record in records if record.offset > check.offset]
        if records:
            apply_records(self.store, records, self.version)
            self._taken += len(records)
        return True

    def take_count(self) -> int:
        """How many records were merged since this was last asked: none that the copy had."""
        taken, self._taken = self._taken, 0
        return taken

    def finish(self, end: int) -> bool:
        """The end is reached; False if the reading must start again from the first record."""
        if self._check is not None and self._check.offset >= end:
            self._recreated("it ends before the local copy does")
            return False
        if self._missed_something(end):
            self._start_over()
            return False
        self.end = end
        return True

    def _missed_something(self, end: int) -> bool:
        """Whether tombstones may have come and gone since the copy was left behind.

        What is to be written to the changelog again is not: nobody else has it.
        """
        stale = self._stale
        return stale is not None and stale.offset + 1 < end and not self.store.news.republish

    def _start_over(self) -> None:
        self._stale = self._check = None
        self.store.discard("it is so old that it may hold what has left the table", logging.INFO)
        self.store.news = News()

    def _recreated(self, sign: str) -> None:
        self._check = None
        self.store.news.republish = True
        # Should the worker end before the changelog is filled, this has the next one fill it.
        self.store.write([], Position(-1, 0, first=-1))
        logger.error(
            "the changelog %s[%d] is not the one that the local copy was made from (%s): what the "
            "copy holds is merged with it and written to it again",
            self.tp.topic,
            self.tp.partition,
            sign,
        )
