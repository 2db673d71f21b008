"""What a table holds under an identity of a judged message: where it came first."""

import struct
from typing import Final

from heartbeat_stream.core.identity.seen import First

__all__ = ["decode_first", "encode_first"]

_PLACE: Final = struct.Struct(">qiq")


def encode_first(first: First | tuple[int, str, int, int]) -> bytes:
    """20 bytes, and the topic. A plain tuple takes a quarter of the time to make."""
    seen_at_ms, topic, partition, offset = first
    return _PLACE.pack(seen_at_ms, partition, offset) + topic.encode()


def decode_first(payload: bytes) -> First:
    """Raises :class:`ValueError` for anything that :func:`encode_first` cannot have made."""
    try:
        seen_at_ms, partition, offset = _PLACE.unpack_from(payload)
    except struct.error as error:
        raise ValueError(f"not a first occurrence: {error}") from None
    return First(seen_at_ms, payload[_PLACE.size :].decode(), partition, offset)
