"""The rules of a heartbeat's five fields: which spellings are accepted, and what they become.

Each function takes what JSON gave (a str, int, float, bool, None, list or dict), returns the
canonical form, and raises :class:`Rejected` for everything else. ``True`` and ``False`` are never
integers here, although Python thinks so.
"""

from typing import TypeGuard

from heartbeat_stream.core.reasons import Reason, Rejected

HOTEL_ID_MAX = 32_767
STATUS_MIN, STATUS_MAX = -32_768, 32_767
TEXT_MAX = 255
"""Longest room or device id, in characters (code points)."""

_DIGITS_MAX = 300  # beyond every limit above, and far below what Python's int() refuses
_BEYOND_ALL = 10**_DIGITS_MAX
_EXCERPT_MAX = 60


def hotel_id(value: object) -> int:
    """Canonical hotel: an integer or a string of ASCII digits, 0 to 32767, ``"007"`` is 7."""
    number = _integer(value)
    if number is None or not 0 <= number <= HOTEL_ID_MAX:
        wanted = f"an integer from 0 to {HOTEL_ID_MAX}, or its digits"
        raise _rejected(Reason.BAD_HOTEL_ID, "hotel_id", value, wanted)
    return number


def room_id(value: object) -> str:
    """Canonical room: a non-empty string, kept as it is; an integer as its decimal string."""
    text = _decimal(value) if type(value) is int else value
    if not _is_text(text) or not text:
        wanted = f"an integer, or 1 to {TEXT_MAX} characters without NUL or lone surrogate"
        raise _rejected(Reason.BAD_ROOM_ID, "room_id", value, wanted)
    return text


def device_id(value: object) -> str | None:
    """Canonical device: a string, which may be empty, or None."""
    if value is None or _is_text(value):
        return value
    wanted = f"null, or at most {TEXT_MAX} characters without NUL or lone surrogate"
    raise _rejected(Reason.BAD_DEVICE_ID, "device_id", value, wanted)


def ts_ms(value: object, min_ts_ms: int, max_ts_ms: int) -> int:
    """Canonical time: an integer, its ASCII digits, or a float without fraction; within bounds."""
    if isinstance(value, float):
        number = int(value) if value.is_integer() else None
    else:
        number = _integer(value)
    if number is None:
        raise _rejected(Reason.BAD_TS_MS, "ts_ms", value, "whole milliseconds since 1970")
    if number < min_ts_ms:
        wanted = f"{min_ts_ms} or later, in milliseconds since 1970"
        raise _rejected(Reason.TS_TOO_OLD, "ts_ms", value, wanted)
    if number > max_ts_ms:
        wanted = f"{max_ts_ms} or earlier, in milliseconds since 1970"
        raise _rejected(Reason.TS_TOO_NEW, "ts_ms", value, wanted)
    return number


def status(value: object) -> int | None:
    """Canonical status: an integer or a string ``-?[0-9]+``, -32768 to 32767, or None."""
    if value is None:
        return None
    number = _integer(value, signed=True)
    if number is None or not STATUS_MIN <= number <= STATUS_MAX:
        wanted = f"null, an integer from {STATUS_MIN} to {STATUS_MAX}, or its digits"
        raise _rejected(Reason.BAD_STATUS, "status", value, wanted)
    return number


def integer_of(digits: str) -> int:
    """``int(digits)`` for ``-?[0-9]+`` of any length, at a bounded cost.

    A number that is beyond every limit may come back as another one that is.
    """
    if len(digits) <= _DIGITS_MAX:
        return int(digits)
    magnitude = digits.removeprefix("-").lstrip("0") or "0"
    number = int(magnitude) if len(magnitude) <= _DIGITS_MAX else _BEYOND_ALL
    return -number if digits[0] == "-" else number


def _integer(value: object, signed: bool = False) -> int | None:
    """The integer that the value is or spells, with a minus only if ``signed``; else None."""
    if type(value) is int:
        return value
    if isinstance(value, str):
        digits = value.removeprefix("-") if signed else value
        # Together these two mean [0-9]+: isdigit() alone also knows other scripts' digits.
        if digits.isascii() and digits.isdigit():
            return integer_of(value)
    return None


def _decimal(number: int) -> str | None:
    """The decimal string; None for one that would be too long, and costly to make."""
    return str(number) if abs(number) < 10**TEXT_MAX else None


def _is_text(value: object) -> TypeGuard[str]:
    if not isinstance(value, str) or len(value) > TEXT_MAX or "\0" in value:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:  # a lone surrogate, which JSON can spell with an escape
        return False
    return True


def _rejected(reason: Reason, field: str, value: object, wanted: str) -> Rejected:
    return Rejected(reason, f"{field} is {_excerpt(value)}, should be {wanted}")


def _excerpt(value: object) -> str:
    """A short look at the value, in printable ASCII."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and abs(value) >= 10**_EXCERPT_MAX:
        return f"an integer of more than {_EXCERPT_MAX} digits"
    if isinstance(value, str):
        shown = ascii(value[:_EXCERPT_MAX])
        if len(value) <= _EXCERPT_MAX and len(shown) <= _EXCERPT_MAX:
            return shown
        return f"{shown[:_EXCERPT_MAX]}... ({len(value)} characters)"
    return "null" if value is None else str(value)
