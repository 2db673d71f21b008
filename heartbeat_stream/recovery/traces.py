"""Headers of a record that was sent again: where it stood before."""

from __future__ import annotations

import time
from collections.abc import Iterable

from heartbeat_stream.streaming.producer import Headers

__all__ = ["REPLAYED_AT", "REPLAYED_FROM", "trace"]

#: ``topic/partition/offset`` of the record that this one repeats.
REPLAYED_FROM = "replayed-from"
#: When it was sent again, in milliseconds since 1970.
REPLAYED_AT = "replayed-at"


def trace(
    headers: Iterable[tuple[str, bytes | None]], topic: str, partition: int, offset: int
) -> Headers:
    """The headers of a record, with those of its last replay in place of an earlier one's."""
    kept = [
        (name, value if value is not None else b"")
        for name, value in headers
        if name not in (REPLAYED_FROM, REPLAYED_AT)
    ]
    return [
        *kept,
        (REPLAYED_FROM, f"{topic}/{partition}/{offset}".encode()),
        (REPLAYED_AT, b"%d" % (time.time_ns() // 1_000_000)),
    ]
