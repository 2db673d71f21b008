"""The broken records that a fleet sends now and then: what real ones were seen to send.

Each entry is the reason under which the record must become a dead letter, and a function that
makes its value from a room and a time.
"""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from heartbeat_stream.core.reasons import Reason
from heartbeat_stream.local.fleet_rooms import Room

Fault = tuple[Reason, Callable[[Room, int], bytes]]

_YEAR_MS = 365 * 24 * 3600 * 1000
_LEFT_OUT = object()


def _with(room: Room, ts_ms: int, field: str, value: Any) -> bytes:
    """A complete heartbeat in which one field has this value, or is left out."""
    fields: dict[str, Any] = {
        "hotel_id": room.hotel_id,
        "room_id": room.room_id,
        "device_id": "dev-broken",
        "ts_ms": ts_ms,
        "status": 1,
        field: value,
    }
    kept = {name: value for name, value in fields.items() if value is not _LEFT_OUT}
    return json.dumps(kept, ensure_ascii=False).encode()


def _utc(ts_ms: int) -> str:
    return datetime.fromtimestamp(ts_ms / 1000, UTC).isoformat()


FAULTS: list[Fault] = [
    (Reason.NOT_JSON, lambda room, ts_ms: room.value(ts_ms)[:-7]),
    (Reason.NOT_JSON, lambda room, ts_ms: _with(room, ts_ms, "signal", float("nan"))),
    (Reason.NOT_UTF8, lambda room, ts_ms: '{"room_id":"会议室"}'.encode("gbk")),
    (Reason.NOT_OBJECT, lambda room, ts_ms: b"[%b]" % room.value(ts_ms)),
    (Reason.MISSING_FIELD, lambda room, ts_ms: _with(room, ts_ms, "room_id", _LEFT_OUT)),
    (Reason.BAD_HOTEL_ID, lambda room, ts_ms: _with(room, ts_ms, "hotel_id", "lobby")),
    (Reason.BAD_ROOM_ID, lambda room, ts_ms: _with(room, ts_ms, "room_id", "")),
    (Reason.BAD_DEVICE_ID, lambda room, ts_ms: _with(room, ts_ms, "device_id", {"mac": "00:1b"})),
    (Reason.BAD_TS_MS, lambda room, ts_ms: _with(room, ts_ms, "ts_ms", _utc(ts_ms))),
    (Reason.TS_TOO_OLD, lambda room, ts_ms: _with(room, ts_ms, "ts_ms", ts_ms // 1000)),
    (Reason.TS_TOO_NEW, lambda room, ts_ms: _with(room, ts_ms, "ts_ms", ts_ms + _YEAR_MS)),
    (Reason.BAD_STATUS, lambda room, ts_ms: _with(room, ts_ms, "status", 70_000)),
]
