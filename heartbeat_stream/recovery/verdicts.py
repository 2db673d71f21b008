"""What can be done with a dead letter now: to be judged again, by the rules as they are now."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
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

__all__ = ["Judged", "Ledger", "Verdict", "bounds_of", "judge", "place_of"]


class Verdict(StrEnum):
    """What becomes of a dead letter; the value says it to people."""

    SEND = "goes to the source topic"
    WRITE = "goes to the database"
    REFUSED = "is still refused by the database, and stays"
    DONE = "was sent before"
    BAD = "is still no heartbeat, and stays"
    CUT = "was cut, so it cannot be sent, and stays"
    FOREIGN = "is of another topic, and stays"


class Judged(NamedTuple):
    """A dead letter that was looked at; ``heartbeat`` is there where it is one."""

    verdict: Verdict
    reason: str
    heartbeat: Heartbeat | None = None


#: The places of the dead letters that were sent before: see :func:`place_of`.
Ledger = set[bytes]


def place_of(tp: TopicPartition, record: FetchedRecord) -> bytes:
    """What tells a dead letter from every other one, also of a topic that was made anew."""
    return b"%d/%d/%d" % (tp.partition, record.offset, record.timestamp)


def bounds_of(settings: Settings, now_ms: int) -> Bounds:
    """The times that a worker accepts now."""
    return Bounds(settings.min_ts_ms, now_ms + settings.max_future_ms)


def judge(
    settings: Settings, tp: TopicPartition, record: FetchedRecord, bounds: Bounds, ledger: Ledger
) -> Judged:
    """What is to become of a dead letter. Raises nothing for what it holds."""
    headers: Mapping[str, bytes | None] = dict(record.headers)
    reason = (headers.get("reason") or b"unknown").decode(errors="replace")
    if place_of(tp, record) in ledger:
        return Judged(Verdict.DONE, reason)
    if (headers.get("source-topic") or b"").decode(errors="replace") != settings.topic:
        return Judged(Verdict.FOREIGN, reason)
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
    return Judged(Verdict.SEND, reason, heartbeat)
