"""Records on their way through a repartition topic: nothing of them is lost there.

The topic counts time from the forwarding on, and places records by another key. So a record's own
key and timestamp, and where it stood, travel in a header; its value and its headers are as before.
"""

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import msgspec

from heartbeat_stream.streaming.fetching import FetchedRecord
from heartbeat_stream.streaming.producer import Header, Headers, OutRecord

__all__ = ["Arrival", "arrived", "forward", "received", "source_headers"]

_ORIGIN: Final = "heartbeat-stream-origin"
#: Partition, offset, timestamp, and whether there was a key; the key follows.
_HEAD: Final = struct.Struct(">iqq?")


class Arrival(msgspec.Struct, gc=False):
    """A record of a source topic, wherever it was read.

    ``version`` is the offset at which it was read: it only grows within a partition.
    """

    key: bytes | None
    value: bytes
    headers: Headers
    partition: int
    offset: int
    at_ms: int
    version: int


def forward(record: FetchedRecord, partition: int, key: bytes) -> OutRecord:
    """A record of a partition of the source, for the partition that belongs to this key."""
    origin = _HEAD.pack(partition, record.offset, record.timestamp, record.key is not None)
    headers = ((_ORIGIN, origin + (record.key or b"")), *_headers(record))
    return OutRecord(key, record.value, headers)


def received(record: FetchedRecord) -> Arrival:
    """A record that :func:`forward` has made. Raises ValueError for another one."""
    names = [name for name, _ in record.headers]
    place = names.index(_ORIGIN) if _ORIGIN in names else -1
    origin = record.headers[place][1] if place >= 0 else None
    if origin is None:
        raise ValueError(f"the record at offset {record.offset} tells no origin")
    partition, offset, timestamp, has_key = _HEAD.unpack_from(origin)
    return Arrival(
        origin[_HEAD.size :] if has_key else None,
        record.value or b"",
        _headers(record)[place + 1 :],
        partition,
        offset,
        timestamp,
        record.offset,
    )


def arrived(record: FetchedRecord, partition: int) -> Arrival:
    """A record that is read from the source itself."""
    return Arrival(
        record.key,
        record.value or b"",
        _headers(record),
        partition,
        record.offset,
        record.timestamp,
        record.offset,
    )


def source_headers(topic: str, arrival: Arrival) -> Headers:
    """Where a record came from: what a reader recognises a repeated output by."""
    of_topic, of_partition = _partition_headers(topic, arrival.partition)
    return of_topic, of_partition, ("source-offset", b"%d" % arrival.offset)


@lru_cache(maxsize=4096)
def _partition_headers(topic: str, partition: int) -> tuple[Header, Header]:
    return ("source-topic", topic.encode()), ("source-partition", b"%d" % partition)


def _headers(record: FetchedRecord) -> Headers:
    found: Sequence[tuple[str, bytes | None]] = record.headers
    return tuple(found)  # type: ignore[arg-type]
