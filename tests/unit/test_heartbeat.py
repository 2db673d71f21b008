"""What is a heartbeat and what is not: the acceptance cases, the edges of each rule, and a
comparison with a slow reading of the same rules that shares no code with the fast one.
"""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from heartbeat_stream.core.heartbeat import (
    Bounds,
    Heartbeat,
    Rejected,
    canonical_key_matches,
    decode,
    parse_key,
    room_key,
)
from heartbeat_stream.core.reasons import DETAIL_MAX, Reason

NOW = 1_700_000_000_000
BOUNDS = Bounds(1_420_070_400_000, NOW + 300_000)
CASES = json.loads((Path(__file__).parents[1] / "cases" / "heartbeats.json").read_text("utf-8"))
BOM = b"\xef\xbb\xbf"


def case_value(case: dict[str, Any]) -> bytes:
    """The bytes of an acceptance case, its placeholders filled in for the time ``NOW``."""
    if "value_hex" in case:
        return bytes.fromhex(case["value_hex"])
    text = case["value"].replace("{T.0}", f"{NOW}.0").replace("{S}", str(NOW // 1000))
    filled = re.sub(r"\{T([+-]\d+)?\}", lambda m: str(NOW + int(m[1] or 0)), text)
    return filled.encode()


def verdict(value: bytes, bounds: Bounds = BOUNDS) -> Heartbeat | Reason:
    """What became of the value; checks what holds for every rejection."""
    try:
        return decode(value, bounds)
    except Rejected as rejected:
        assert 0 < len(rejected.detail) <= DETAIL_MAX
        assert rejected.detail.isascii()
        assert rejected.detail.isprintable()
        return rejected.reason


def record(**fields: str) -> bytes:
    """A good heartbeat, in which some fields are replaced by the given JSON text."""
    good = {
        "hotel_id": "7",
        "room_id": '"101"',
        "device_id": '"dev-1"',
        "ts_ms": str(NOW),
        "status": "1",
    }
    return ("{%s}" % ",".join(f'"{k}":{v}' for k, v in (good | fields).items())).encode()


GOOD = Heartbeat(7, "101", NOW, "dev-1", 1)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_acceptance_case(case: dict[str, Any]) -> None:
    if case["outcome"] == "skipped":
        assert case.get("value") is None  # a tombstone never gets as far as decode()
        return
    outcome = verdict(case_value(case))
    if case["outcome"] == "row":
        hotel, room, device, ts_offset, status = case["row"]
        assert outcome == Heartbeat(hotel, room, NOW + ts_offset, device, status)
    else:
        assert isinstance(outcome, Reason)
