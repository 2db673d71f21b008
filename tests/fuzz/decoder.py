"""What may come of any bytes that somebody sends as a heartbeat."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec

from heartbeat_stream.core.heartbeat import Bounds, Heartbeat, decode, parse_key, room_key
from heartbeat_stream.core.reasons import DETAIL_MAX, Reason, Rejected
from tests.support.slow_heartbeat import slow_decode

__all__ = ["BOUNDS", "DICTIONARY", "check", "seeds"]

NOW = 1_700_000_000_000
BOUNDS = Bounds(1_420_070_400_000, NOW + 300_000)
_CASES = Path(__file__).parents[1] / "cases" / "heartbeats.json"

#: What a fuzzer finds by itself only late.
DICTIONARY = [
    *('"hotel_id"', '"room_id"', '"device_id"', '"ts_ms"', '"status"', "null", "true", "NaN"),
    *("Infinity", "1700000000000", "1.7e12", '"1700000000000"', "32767", "-32768", "\ufeff"),
    *(r"\u0000", r"\ud800", r"\udc00", "1e400", "[[[[", '{"a":', "大会议室"),
]


def check(value: bytes) -> None:
    """Require a documented outcome, and the one that a slow reading of the rules comes to."""
    heartbeat = _decoded(value)
    try:
        expected = slow_decode(value, BOUNDS)
    except RecursionError:
        return  # the slow one gives up earlier or later
    if heartbeat is None and expected is not None and value.count(b"[") + value.count(b"{") > 500:
        return  # deeper than has to be followed
    assert heartbeat == expected


def _decoded(value: bytes) -> Heartbeat | None:
    try:
        heartbeat = decode(value, BOUNDS)
    except Rejected as error:
        rejected = error
    else:
        key = room_key(heartbeat.hotel_id, heartbeat.room_id)
        assert parse_key(key) == (heartbeat.hotel_id, heartbeat.room_id)
        again = msgspec.json.encode(heartbeat)
        assert decode(again, BOUNDS) == heartbeat
        return heartbeat
    detail = rejected.detail
    assert rejected.reason in Reason
    assert 0 < len(detail) <= DETAIL_MAX, detail
    assert detail.isascii(), detail
    assert detail.isprintable(), detail
    return None


def seeds() -> list[bytes]:
    """The acceptance cases, with their placeholders filled in."""
    found = []
    for case in json.loads(_CASES.read_text("utf-8")):
        if "value_hex" in case:
            found.append(bytes.fromhex(case["value_hex"]))
        elif case["value"] is not None:
            text = case["value"].replace("{T.0}", f"{NOW}.0").replace("{S}", str(NOW // 1000))
            text = re.sub(r"\{T([+-]\d+)?\}", lambda at: str(NOW + int(at[1] or 0)), text)
            found.append(text.encode())
    return found
