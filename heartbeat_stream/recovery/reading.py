"""Reading a part of a topic, once, from an offset to an offset."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from itertools import chain
from typing import NamedTuple

from aiokafka.errors import OffsetOutOfRangeError
from aiokafka.structs import TopicPartition

from heartbeat_stream.recovery.cluster import open_consumer
from heartbeat_stream.settings import Settings
from heartbeat_stream.streaming.fetching import FetchedRecord, fetch_raw_records

__all__ = ["Span", "read_spans", "records_in"]

_MOST_BATCHES = 100
_PARTITION_BYTES = 4 * 1024 * 1024


class Span(NamedTuple):
    """Offsets of a partition, from the first to before the last."""

    first: int
    end: int

    def __len__(self) -> int:
        return max(0, self.end - self.first)


def records_in(spans: Mapping[TopicPartition, Span]) -> int:
    """How many offsets lie in them: as many records, or a few more than there are."""
    return sum(map(len, spans.values()))


async def read_spans(
    settings: Settings, spans: Mapping[TopicPartition, Span]
) -> AsyncIterator[tuple[TopicPartition, list[FetchedRecord]]]:
    """The records of each span, in order within a partition, each list of one partition.

    As workers read them: those of aborted transactions are nobody's. Waits for the end of one that
    is open within a span, which none is whose end `ends_of` or `offsets_at` has told. What
    retention deletes meanwhile is passed over. Raises KafkaError.
    """
    left = {tp for tp, span in spans.items() if len(span)}
    if not left:
        return
    async with open_consumer(
        settings,
        fetch_max_wait_ms=50,
        max_partition_fetch_bytes=_PARTITION_BYTES,
    ) as consumer:
        fetch_raw_records(consumer)
        consumer.assign(sorted(left))
        for tp in left:
            consumer.seek(tp, spans[tp].first)
        while left:
            try:
                fetched = await consumer.getmany(*left, timeout_ms=200, max_records=_MOST_BATCHES)
            except OffsetOutOfRangeError as error:
                await consumer.seek_to_beginning(*(tp for tp in error.args[0] if tp in left))
                continue
            for tp, batches in fetched.items():
                end = spans[tp].end
                records = [one for one in chain.from_iterable(batches) if one.offset < end]
                if records:
                    yield tp, records
            for tp in list(left):
                if await consumer.position(tp) >= spans[tp].end:
                    left.discard(tp)
                    consumer.pause(tp)
