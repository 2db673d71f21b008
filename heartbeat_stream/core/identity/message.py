"""A message as far as its identity needs it, and what it has in common with others of its scope."""

from __future__ import annotations

from typing import TYPE_CHECKING

from heartbeat_stream.core.identity.epochs import Move
from heartbeat_stream.core.identity.layer import STATE_MARK, Abstention
from heartbeat_stream.core.identity.message_id import IdReading

if TYPE_CHECKING:
    from heartbeat_stream.core.identity.channel import Channel

__all__ = ["Message", "Scope"]


class Scope:
    """What all messages of a scope and channel have in common."""

    __slots__ = ("channel", "id_start", "key", "key_start")

    def __init__(self, channel: Channel, key: bytes) -> None:
        self.channel = channel
        self.key = key
        self.id_start = channel.id_tag + key
        self.key_start = channel.key_tag + key


class Message:
    """Read once, judged once. ``fields``, ``scope``, ``id`` and ``move`` are the engine's own."""

    __slots__ = ("_time_us", "_timed", "fields", "id", "move", "scope", "value")

    def __init__(
        self, value: bytes, fields: object, scope: Scope, id_: IdReading | Abstention
    ) -> None:
        self.value = value
        self.fields = fields
        self.scope = scope
        self.id = id_
        self.move: Move | None = None
        self._timed = False
        self._time_us: int | None = None

    @property
    def channel(self) -> str:
        """The name in the configuration, which may be "*"."""
        return self.scope.channel.name

    @property
    def scope_key(self) -> bytes:
        """What to partition by: nothing but the scope, whatever the rules are."""
        return self.scope.key

    @property
    def state_key(self) -> bytes | None:
        """The key of the state of its sequence; None for a message that takes no part in one."""
        return STATE_MARK + self.id.scope[1:] if type(self.id) is IdReading else None

    def time_us(self) -> int | None:
        """The exchange's time in microseconds; None where it has none. Raises Rejected."""
        if not self._timed:
            self._time_us = self.scope.channel.time_of(self.fields)
            self._timed = True
        return self._time_us
