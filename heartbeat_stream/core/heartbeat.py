"""What a heartbeat is, how it is read from the value of a Kafka record, and its room's key.

Reading goes the short way first: msgspec checks types and ranges in C while it decodes. Only a
value that fails there, or that holds something which msgspec lets pass, takes the careful way,
which knows every other spelling that the rules allow, and the reason for the rest.
"""

from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from heartbeat_stream.core import fields
from heartbeat_stream.core.json_object import raw_fields
from heartbeat_stream.core.reasons import Reason, Rejected

__all__ = [
    "Bounds",
    "Heartbeat",
    "Rejected",
    "canonical_key_matches",
    "decode",
    "parse_key",
    "room_key",
]

_BACKSLASH = ord("\\")


class Heartbeat(msgspec.Struct, gc=False):
    """The state of one room as one of its devices reported it, in canonical form.

    ``ts_ms`` is the device's time, in milliseconds since 1970. ``None`` stands for a field that
    was null or missing, and becomes NULL in the database.
    """

    hotel_id: Annotated[int, Meta(ge=0, le=fields.HOTEL_ID_MAX)]
    room_id: Annotated[str, Meta(min_length=1, max_length=fields.TEXT_MAX)]
    ts_ms: int
    device_id: Annotated[str, Meta(max_length=fields.TEXT_MAX)] | None = None
    status: Annotated[int, Meta(ge=fields.STATUS_MIN, le=fields.STATUS_MAX)] | None = None


class Bounds(NamedTuple):
    """The smallest and the greatest ``ts_ms`` that are accepted, both inclusive."""

    min_ts_ms: int
    max_ts_ms: int


_decode_strictly = msgspec.json.Decoder(Heartbeat).decode


def decode(value: bytes, bounds: Bounds) -> Heartbeat:
    """Read the value of a record of the source topic.

    Raises :class:`Rejected`, and nothing else, for a value that is no heartbeat. Neither blocks
    nor keeps anything of the value.
    """
    try:
        heartbeat = _decode_strictly(value)
    except (msgspec.DecodeError, RecursionError):
        return _decode_carefully(value, bounds)
    # msgspec lets two things pass: an escaped NUL, and bytes that are not UTF-8 where it skips an
    # unknown field. The first of each pair of tests is cheap, and spares most values the second.
    if (
        bounds[0] <= heartbeat.ts_ms <= bounds[1]
        and (_BACKSLASH not in value or _is_free_of_nul(heartbeat))
        and (value.isascii() or _is_utf8(value))
    ):
        return heartbeat
    return _decode_carefully(value, bounds)


def _is_free_of_nul(heartbeat: Heartbeat) -> bool:
    return "\0" not in heartbeat.room_id and "\0" not in (heartbeat.device_id or "")


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _decode_carefully(value: bytes, bounds: Bounds) -> Heartbeat:
    raw = raw_fields(value)
    if raw.hotel_id is None or raw.room_id is None or raw.ts_ms is None:
        missing = [name for name in ("hotel_id", "room_id", "ts_ms") if getattr(raw, name) is None]
        raise Rejected(Reason.MISSING_FIELD, f"{', '.join(missing)} should be there and not null")
    return Heartbeat(
        hotel_id=fields.hotel_id(raw.hotel_id),
        room_id=fields.room_id(raw.room_id),
        device_id=fields.device_id(raw.device_id),
        ts_ms=fields.ts_ms(raw.ts_ms, *bounds),
        status=fields.status(raw.status),
    )


def room_key(hotel_id: int, room_id: str) -> bytes:
    """The key of a room's records and state: ``hotel:room`` in UTF-8, as in ``b"2045:6010"``.

    No two rooms share a key, although a room id may hold colons: a hotel never does.
    """
    return f"{hotel_id}:{room_id}".encode()


def parse_key(key: bytes) -> tuple[int, str]:
    """The hotel and the room of a key that :func:`room_key` made.

    Raises :class:`ValueError` for anything that it cannot have made.
    """
    try:
        hotel, colon, room = key.decode().partition(":")
        hotel_id, room_id = fields.hotel_id(hotel), fields.room_id(room)
    except (UnicodeDecodeError, Rejected):
        raise ValueError(f"not a key hotel:room: {key[:60]!r}") from None
    if not colon or room_key(hotel_id, room_id) != key:
        raise ValueError(f"not a canonical key hotel:room: {key[:60]!r}")
    return hotel_id, room_id


def canonical_key_matches(key: bytes | None, heartbeat: Heartbeat) -> bool:
    """Whether a record of a keyed source carries exactly the key of the room in its value."""
    return key == room_key(heartbeat.hotel_id, heartbeat.room_id)
