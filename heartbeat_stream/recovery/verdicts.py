"""What can be done with a dead letter now: to be judged again, by the rules as they are now."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from hashlib import blake2b
from typing import NamedTuple

from aiokafka.structs import TopicPartition

from heartbeat_stream.core.heartbeat import (
    Bounds,
    Heartbeat,
    Rejected,
    canonical_key_matches,
    decode,
)
from heartbeat_stream.core.reasons import Reason
from heartbeat_stream.settings import Settings
from heartbeat_stream.streaming.dead_letters import CUT_MARK
from heartbeat_stream.streaming.fetching import FetchedRecord

__all__ = [
    "Judged",
    "Ledger",
    "Verdict",
    "bounds_of",
    "judge",
    "made_key",
    "sent_key",
    "source_partition",
]

_REASONS = frozenset(map(str, Reason))


class Verdict(Enum):
    """What becomes of a dead letter, in words for people: before it is done, and afterwards."""

    SEND = "goes to the source topic", "sent to the source topic"
    WRITE = "goes to the database", "written to the database"
    REFUSED = ("is still refused by the database, and stays",) * 2
    DONE = ("was sent before",) * 2
    BACK = ("came back after it had been sent, and stays",) * 2
    BAD = ("is still no heartbeat, and stays",) * 2
    CUT = ("was cut, so it cannot be sent, and stays",) * 2
    FOREIGN = ("is of another topic, and stays",) * 2
    ASTRAY = ("names a partition that cannot be, and stays",) * 2

    def __init__(self, planned: str, done: str) -> None:
        self.planned = planned
        self.done = done


class Judged(NamedTuple):
    """A dead letter that was looked at; ``heartbeat`` is there where it is one."""

    verdict: Verdict
    reason: str
    heartbeat: Heartbeat | None = None


#: What was sent before, see :func:`sent_key`, and what that became, see :func:`made_key`.
Ledger = set[bytes]


def sent_key(tp: TopicPartition, record: FetchedRecord) -> bytes:
    """What all dead letters of one source record have in common, and no others.

    A record that workers take in again becomes a dead letter again: it is sent once all the same.
    A row that the database has refused is another matter than the record that it came from.
    """
    headers = dict(record.headers)
    kind = b"row" if headers.get("reason") == str(Reason.ROW_REFUSED).encode() else b"sent"
    return b"%s/%s" % (kind, _origin(tp, record, headers))


def source_partition(record: FetchedRecord) -> int | None:
    """The partition that its source record stood in, 0 unless it says; None if that is nonsense."""
    told = dict(record.headers).get("source-partition") or b"0"
    return int(told) if told.isdigit() and len(told) < 10 else None


def made_key(topic: str, partition: int, offset: int, value: bytes | None) -> bytes:
    """What a record that was sent again is noted as, so that it is known when it comes back."""
    return b"made/%s" % _place(topic.encode(), b"%d" % partition, b"%d" % offset, value)


def _origin(
    tp: TopicPartition, record: FetchedRecord, headers: Mapping[str, bytes | None]
) -> bytes:
    """Where its source record stood; where the dead letter stands if that is not known."""
    topic, partition, offset = (
        headers.get(f"source-{name}") for name in ("topic", "partition", "offset")
    )
    if not topic or not partition or not offset:
        topic, partition, offset = tp.topic.encode(), b"%d" % tp.partition, b"%d" % record.offset
    return _place(topic, partition, offset, record.value)


def _place(topic: bytes, partition: bytes, offset: bytes, value: bytes | None) -> bytes:
    """The value tells the records of a topic from those of one that was made anew."""
    digest = blake2b(value or b"", digest_size=8).hexdigest().encode()
    return b"%s/%s/%s/%s" % (topic, partition, offset, digest)


def bounds_of(settings: Settings, now_ms: int) -> Bounds:
    """The times that a worker accepts now."""
    return Bounds(settings.min_ts_ms, now_ms + settings.max_future_ms)


def judge(
    settings: Settings,
    tp: TopicPartition,
    record: FetchedRecord,
    bounds: Bounds,
    ledger: Ledger,
    *,
    again: bool = False,
) -> Judged:
    """What is to become of a dead letter. Raises nothing for what it holds.

    ``again``: what has come back after it was sent is sent once more.
    """
    headers: Mapping[str, bytes | None] = dict(record.headers)
    reason = (headers.get("reason") or b"").decode(errors="replace")
    if reason not in _REASONS:  # nobody's but a stranger's, and shown on a terminal
        reason = "unknown"
    if sent_key(tp, record) in ledger:
        return Judged(Verdict.DONE, reason)
    if (headers.get("source-topic") or b"").decode(errors="replace") != settings.topic:
        return Judged(Verdict.FOREIGN, reason)
    if source_partition(record) is None:
        return Judged(Verdict.ASTRAY, reason)
    if CUT_MARK in headers:
        return Judged(Verdict.CUT, reason)
    try:
        heartbeat = decode(record.value or b"", bounds)
    except Rejected:
        return Judged(Verdict.BAD, reason)
    if reason == Reason.ROW_REFUSED:
        # The workers know this heartbeat, and would take it for one that comes again.
        return Judged(Verdict.WRITE, reason, heartbeat)
    if settings.source_keyed and not canonical_key_matches(record.key, heartbeat):
        return Judged(Verdict.BAD, reason)
    if not again and b"made/%s" % _origin(tp, record, headers) in ledger:
        return Judged(Verdict.BACK, reason)
    return Judged(Verdict.SEND, reason, heartbeat)
