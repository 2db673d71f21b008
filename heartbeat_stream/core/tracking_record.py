"""How an event travels in Kafka: as it came, with what is known about it in headers.

The collector writes such records, and the job behind Kafka reads them. A record of another source
needs no header: its project is then the event's own, and it was received at its timestamp.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

__all__ = ["Envelope", "Verdict", "envelope_of", "headers_of"]

_PROJECT = "project"
_REMARK = "remark"
_RECEIVED_AT = "received-at"
_VERDICT = "verdict"
_DIGITS_MAX = 15

Headers = list[tuple[str, bytes]]


class Verdict(StrEnum):
    """What became of an event that was judged at the door. Without one nobody has judged it."""

    FIRST = "first"
    DUPLICATE = "duplicate"
    UNJUDGED = "unjudged"  #: It has an identity, and the store of those seen did not answer.
    EXEMPT = "exempt"  #: It has no identity.


class Envelope(NamedTuple):
    """What comes with an event. ``received_at_ms`` is the time at the door, set once."""

    project: str | None = None
    remark: str | None = None
    received_at_ms: int | None = None
    verdict: Verdict | None = None


def headers_of(envelope: Envelope) -> Headers:
    """The headers of a record."""
    headers = []
    if envelope.project is not None:
        headers.append((_PROJECT, envelope.project.encode()))
    if envelope.remark is not None:
        headers.append((_REMARK, envelope.remark.encode()))
    if envelope.received_at_ms is not None:
        headers.append((_RECEIVED_AT, b"%d" % envelope.received_at_ms))
    if envelope.verdict is not None:
        headers.append((_VERDICT, str(envelope.verdict).encode()))
    return headers


def envelope_of(headers: Iterable[tuple[str, bytes | None]]) -> Envelope:
    """What the headers of a record say. One that says nothing sensible counts as missing."""
    texts = {name: (value or b"").decode(errors="replace") for name, value in headers}
    at = texts.get(_RECEIVED_AT, "")
    in_digits = at.isascii() and at.isdecimal() and len(at) <= _DIGITS_MAX
    verdict = texts.get(_VERDICT)
    return Envelope(
        project=texts.get(_PROJECT) or None,
        remark=texts.get(_REMARK),
        received_at_ms=int(at) if in_digits else None,
        verdict=Verdict(verdict) if verdict in set(Verdict) else None,
    )
