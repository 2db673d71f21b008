"""A message as far as its identity needs it, and what it has in common with others of its scope."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from heartbeat_stream.core.identity.epochs import Move
from heartbeat_stream.core.identity.layer import STATE_MARK, Abstention
from heartbeat_stream.core.identity.message_id import IdReading

if TYPE_CHECKING:
    from heartbeat_stream.core.identity.channel import Channel

__all__ = ["Message", "Scope", "state_key"]


def state_key(id_start: bytes) -> bytes:
    """The key of the state of the sequence whose ids' keys begin with this."""
    return STATE_MARK + id_start[1:]


class Scope:
    """What all messages of a scope and channel have in common."""

    __slots__ = ("channel", "id_start", "key", "key_start", "shown", "state_key")

    def __init__(self, channel: Channel, key: bytes, shown: Mapping[str, str]) -> None:
        """``shown``: the fields that decide about the partition, with their values as text."""
        self.channel = channel
        self.key = key
        self.shown = shown
        self.id_start = channel.id_tag + key
        self.state_key = state_key(self.id_start)
        self.key_start = channel.key_tag + key


class Message:
    """Read once, judged once. ``fields``, ``scope``, ``id`` and ``move`` are the engine's own."""

    __slots__ = ("_time_us", "_timed", "fields", "id", "move", "scope", "state_key", "value")

    def __init__(
        self,
        value: bytes,
        fields: object,
        scope: Scope,
        id_: IdReading | Abstention,
        state_key: bytes | None,
    ) -> None:
        """``state_key``: that of its sequence; None for a message that takes no part in one."""
        self.value = value
        self.fields = fields
        self.scope = scope
        self.id = id_
        self.state_key = state_key
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

    def time_us(self) -> int | None:
        """The exchange's time in microseconds; None where it has none. Raises Rejected."""
        if not self._timed:
            self._time_us = self.scope.channel.time_of(self.fields)
            self._timed = True
        return self._time_us
