"""Where in a topic something begins or ends, as an operator writes it."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import NamedTuple

__all__ = [
    "AtOffset",
    "AtTime",
    "Earliest",
    "Moment",
    "is_reversed",
    "parse_moment",
    "parse_time",
    "shown_time",
]

_AGO = re.compile(r"([0-9]{1,9})([smhd])")
_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_TIME = (
    "a time (2026-11-30T22:00:00+08:00; UTC where it names no zone) or so long ago (90m, 2h, 3d)"
)


class Earliest(NamedTuple):
    """The first record that a partition still has."""

    def __str__(self) -> str:
        return "the earliest record"


class AtOffset(NamedTuple):
    """The same offset in every partition."""

    offset: int

    def __str__(self) -> str:
        return f"offset {self.offset}"


class AtTime(NamedTuple):
    """The first record with this timestamp or a later one, in milliseconds since 1970."""

    ms: int

    def __str__(self) -> str:
        return shown_time(self.ms)


Moment = Earliest | AtOffset | AtTime


def is_reversed(start: Moment, end: Moment) -> bool:
    """Whether nothing can lie between them. A time and an offset may be in either order."""
    match start, end:
        case _, Earliest():
            return True
        case AtOffset(first), AtOffset(last):
            return last <= first
        case AtTime(first), AtTime(last):
            return last <= first
    return False


def parse_moment(text: str, now_ms: int) -> Moment:
    """``earliest``, an offset, or a time. Raises ValueError, whose message says what is wanted."""
    if text == "earliest":
        return Earliest()
    if text.isascii() and text.isdecimal():
        if len(text) > 18:
            raise ValueError(f"{text!r} is beyond every offset")
        return AtOffset(int(text))
    try:
        return AtTime(parse_time(text, now_ms))
    except ValueError:
        raise ValueError(f"{text!r} is wrong: want earliest, an offset, {_TIME}") from None


def parse_time(text: str, now_ms: int) -> int:
    """A time, in milliseconds since 1970. Raises ValueError as :func:`parse_moment` does."""
    ago = _AGO.fullmatch(text)
    if ago:
        return max(0, now_ms - int(ago[1]) * _UNIT_MS[ago[2]])
    try:
        # Digits alone would be a date to Python, and milliseconds to whoever typed them.
        when = None if text.isdecimal() else datetime.fromisoformat(text)
    except ValueError:
        when = None
    if when is None or when.year < 1970:
        raise ValueError(f"{text!r} is wrong: want {_TIME}")
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return round(when.timestamp() * 1000)


def shown_time(ms: int) -> str:
    """For people: ``2026-11-30 14:00:00.000 UTC``; the number where no calendar goes so far."""
    try:
        when = datetime.fromtimestamp(ms // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"
    return f"{when:%Y-%m-%d %H:%M:%S}.{ms % 1000:03} UTC"
