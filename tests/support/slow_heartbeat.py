"""A slow reading of what a heartbeat is, which shares no code with the product's."""

import json
import re
from decimal import Decimal
from typing import TypeGuard

from heartbeat_stream.core.heartbeat import Bounds, Heartbeat

__all__ = ["is_text", "slow_decode"]


class IntText(str):
    """A JSON number without fraction and exponent, as it was spelled."""


class FloatText(str):
    """Any other JSON number, as it was spelled."""


def is_text(value: object) -> TypeGuard[str]:
    if not isinstance(value, str) or isinstance(value, IntText | FloatText) or len(value) > 255:
        return False
    return not any(c == "\0" or "\ud800" <= c <= "\udfff" for c in value)


def number_in(value: object, spelling: str, low: int, high: int) -> int | None:
    is_spelled = type(value) is str and re.fullmatch(spelling, value)
    if not (is_spelled or isinstance(value, IntText)):
        return None
    exact = Decimal(str(value))
    return int(exact) if low <= exact <= high else None


def slow_decode(value: bytes, bounds: Bounds) -> Heartbeat | None:
    """The heartbeat, or None for a dead letter."""

    def no_constant(name: str) -> None:
        raise ValueError(name)

    try:
        text = value.decode("utf-8", errors="strict")
        document = json.loads(
            text[1:] if text.startswith("\ufeff") else text,
            object_pairs_hook=dict,
            parse_int=IntText,
            parse_float=FloatText,
            parse_constant=no_constant,
        )
    except ValueError:
        return None
    if not isinstance(document, dict):
        return None
    hotel = number_in(document.get("hotel_id"), "[0-9]+", 0, 32767)
    ts = document.get("ts_ms")
    if isinstance(ts, FloatText):
        as_float = float(ts)
        ts = IntText(f"{as_float:.0f}") if as_float % 1 == 0 else None
    ts_ms = number_in(ts, "[0-9]+", *bounds)
    room = document.get("room_id")
    if isinstance(room, IntText):
        room = "0" if room == "-0" else str(room)
    device = document.get("device_id")
    status = document.get("status")
    status_number = number_in(status, "-?[0-9]+", -32768, 32767)
    if (
        hotel is None
        or ts_ms is None
        or not is_text(room)
        or room == ""
        or not (device is None or is_text(device))
        or (status is not None and status_number is None)
    ):
        return None
    return Heartbeat(hotel, room, ts_ms, device, status_number)
