"""How the state of judged messages stands in a table: keys, and what is held under them."""

import struct
from typing import Final

from heartbeat_stream.core.identity.layer import Layer
from heartbeat_stream.core.identity.seen import First

__all__ = ["PREFIXES", "STATE_PREFIX", "decode_first", "encode_first"]

#: Before an identity's key: identities of different layers never meet.
PREFIXES: Final = {
    Layer.MESSAGE_ID: b"i",
    Layer.BUSINESS_KEY: b"b",
    Layer.FINGERPRINT: b"f",
}
#: Before the key of a sequence's state.
STATE_PREFIX: Final = b"s"

_PLACE: Final = struct.Struct(">qiq")


def encode_first(first: First) -> bytes:
    """20 bytes, and the topic."""
    return _PLACE.pack(first.seen_at_ms, first.partition, first.offset) + first.topic.encode()


def decode_first(payload: bytes) -> First:
    """Raises :class:`ValueError` for anything that :func:`encode_first` cannot have made."""
    try:
        seen_at_ms, partition, offset = _PLACE.unpack_from(payload)
    except struct.error as error:
        raise ValueError(f"not a first occurrence: {error}") from None
    return First(seen_at_ms, payload[_PLACE.size :].decode(), partition, offset)
