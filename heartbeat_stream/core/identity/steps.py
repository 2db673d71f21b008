"""The layers of one channel as the engine walks them: each turns a message into a key."""

from collections.abc import Callable
from typing import Protocol

from heartbeat_stream.core.identity.layer import Abstention, Layer
from heartbeat_stream.core.identity.message import Message
from heartbeat_stream.core.identity.message_id import IdReading, MessageIds, id_key
from heartbeat_stream.core.identity.scope_state import ScopeState

__all__ = ["BusinessKeyStep", "FingerprintStep", "MessageIdStep", "Step"]


class Step(Protocol):
    """One layer. Its key is unique over all layers and channels."""

    layer: Layer
    place: int
    """Its place in the order of layers, from 0."""
    ttl_ms: int

    def key(self, message: Message, state: ScopeState | None) -> bytes | Abstention:
        """The key under which the message is looked up. Raises Rejected."""


class MessageIdStep:
    """Leaves in ``message.move`` where the id stands in its sequence."""

    layer = Layer.MESSAGE_ID
    place = 0

    def __init__(self, ttl_ms: int, ids: MessageIds) -> None:
        self.ttl_ms = ttl_ms
        self._place = ids.place
        self._uses_time = ids.uses_time

    def key(self, message: Message, state: ScopeState | None) -> bytes | Abstention:
        reading = message.id
        if type(reading) is not IdReading:
            return reading  # type: ignore[return-value]
        time_us = message.time_us() if self._uses_time else None
        move = message.move = self._place(reading, state, time_us)
        return id_key(reading.scope, move.epoch, reading.text)


class BusinessKeyStep:
    """The business key behind the scope, with which every key of a job begins."""

    layer = Layer.BUSINESS_KEY
    place = 1

    def __init__(
        self,
        ttl_ms: int,
        key_of: Callable[[object, int | None], bytes | Abstention],
        *,
        uses_time: bool,
    ) -> None:
        self.ttl_ms = ttl_ms
        self._key_of = key_of
        self._uses_time = uses_time

    def key(self, message: Message, state: ScopeState | None) -> bytes | Abstention:
        key = self._key_of(message.fields, message.time_us() if self._uses_time else None)
        return key if type(key) is Abstention else message.scope.key_start + key  # type: ignore[operator]


class FingerprintStep:
    """The fingerprint of the whole content: it never abstains."""

    layer = Layer.FINGERPRINT
    place = 2

    def __init__(self, ttl_ms: int, tag: bytes, fingerprint: Callable[[bytes], bytes]) -> None:
        self.ttl_ms = ttl_ms
        self._tag = tag
        self._fingerprint = fingerprint

    def key(self, message: Message, state: ScopeState | None) -> bytes | Abstention:
        return self._tag + self._fingerprint(message.value)
