"""The events of a report as records for Kafka, before they are judged."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from heartbeat_stream.collector.judging import seen_key
from heartbeat_stream.collector.report import Report
from heartbeat_stream.collector.unpacking import Bounds, events_of, unpack
from heartbeat_stream.core.reasons import Reason, Rejected
from heartbeat_stream.core.tracking import read_event
from heartbeat_stream.core.tracking_record import Verdict

__all__ = ["ITEM_BYTES", "BadPart", "Item", "Reading", "read_items", "unpack_report"]

#: Events that are read before others have their turn: some two milliseconds.
_AT_ONCE: Final = 250
#: What an event takes besides its text.
ITEM_BYTES: Final = 600


@dataclass(slots=True)
class Item:
    """One event on its way. ``key`` is None where it has no identity, or is not to be judged;
    ``verdict`` is None until it is."""

    value: bytes
    partition_key: bytes
    key: bytes | None
    project: str
    lib: str
    verdict: Verdict | None = None


@dataclass(frozen=True, slots=True)
class BadPart:
    """What belongs in the dead letters."""

    value: bytes
    rejected: Rejected


@dataclass(slots=True)
class Reading:
    """All of a report: what can be sent, and what cannot be used."""

    items: list[Item]
    bad: list[BadPart]


def unpack_report(report: Report, bounds: Bounds) -> tuple[list[bytes], list[BadPart]]:
    """The JSON texts of a report, and the parts that hold none. Takes time by their size."""
    documents, bad = [], []
    for part in report.parts:
        try:
            documents.append(unpack(part, bounds))
        except Rejected as rejected:
            bad.append(BadPart(part, rejected))
    if not report.parts:
        nothing = Rejected(Reason.BAD_REPORT, "it holds neither data nor data_list")
        bad.append(BadPart(b"", nothing))
    return documents, bad


async def read_items(
    report: Report, documents: Sequence[bytes], bounds: Bounds, *, judged: bool, signup: bool
) -> Reading:
    """Read all events. Others have their turn in between."""
    reading = Reading([], [])
    for document in documents:
        try:
            events = events_of(document, bounds)
        except Rejected as rejected:
            reading.bad.append(BadPart(document, rejected))
            continue
        for at in range(0, len(events), _AT_ONCE):
            if at:
                await asyncio.sleep(0)
            for value in events[at : at + _AT_ONCE]:
                _read(report, value, reading, judged=judged, signup=signup)
    return reading


def _read(report: Report, value: bytes, reading: Reading, *, judged: bool, signup: bool) -> None:
    try:
        event = read_event(value, project=report.project, remark=report.remark)
    except Rejected as rejected:
        reading.bad.append(BadPart(value, rejected))
        return
    identity = event.identity(signup=signup) if judged else None
    reading.items.append(
        Item(
            value=value,
            partition_key=event.partition_key,
            key=seen_key(identity) if identity is not None else None,
            project=event.project,
            lib=event.lib,
        )
    )
