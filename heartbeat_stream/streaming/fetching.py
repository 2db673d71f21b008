"""Records as Kafka's record batches hold them, without an object of aiokafka's around each.

aiokafka makes a ``ConsumerRecord`` of eleven fields of every record. Nothing here needs more than
offset, timestamp, key, value and headers, which the parsed record has itself; leaving the wrapping
out takes a third off the cost of reading.

Relied upon in aiokafka 0.14: ``Fetcher._records`` is one dictionary for the fetcher's life, into
which it puts a ``FetchResult`` per partition; that result's ``PartitionRecords`` reads lazily from
``_records_iterator``, and ``next_fetch_offset`` is the position when the iterator pauses.
``tests/integration/test_fetching.py`` breaks where that changes.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from aiokafka.consumer.consumer import AIOKafkaConsumer
from aiokafka.consumer.fetcher import READ_COMMITTED, FetchResult, PartitionRecords
from aiokafka.errors import CorruptRecordException

__all__ = ["FetchedRecord", "fetch_raw_records"]


class FetchedRecord(Protocol):
    """A record as parsed; ``timestamp`` in milliseconds."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


def fetch_raw_records(consumer: AIOKafkaConsumer) -> None:
    """Have a started consumer's ``getmany`` answer lists of lists: one of each record batch."""
    fetcher = consumer._fetcher
    fetcher._records = _Results(fetcher._records)


class _Results(OrderedDict[Any, Any]):
    """Fetch results by partition, each made to yield whole batches as it comes in."""

    def __setitem__(self, tp: Any, result: Any) -> None:
        if isinstance(result, FetchResult):
            records = result._partition_records
            records._records_iterator = _batches(records)
        super().__setitem__(tp, result)


def _batches(partition: PartitionRecords) -> Iterator[list[FetchedRecord]]:
    """What ``PartitionRecords._unpack_records`` does, a batch at a time."""
    records = partition._records
    while records.has_next():
        batch = records.next_batch()
        if partition._check_crcs and not batch.validate_crc():
            raise CorruptRecordException(f"Invalid CRC - {partition._tp}")
        if not _is_aborted(partition, batch) and not batch.is_control_batch:
            fetched = list(batch)
            if fetched and fetched[0].offset < partition.next_fetch_offset:
                # A fetch answers whole batches, also where it was to begin within one.
                fetched = [one for one in fetched if one.offset >= partition.next_fetch_offset]
            partition.next_fetch_offset = batch.next_offset
            if fetched:
                yield fetched
        partition.next_fetch_offset = batch.next_offset


def _is_aborted(partition: PartitionRecords, batch: Any) -> bool:
    if partition._isolation_level != READ_COMMITTED or batch.producer_id is None:
        return False
    partition._consume_aborted_up_to(batch.base_offset)
    if batch.is_control_batch and partition._contains_abort_marker(batch):
        partition._aborted_producers.discard(batch.producer_id)
    return batch.is_transactional and batch.producer_id in partition._aborted_producers
