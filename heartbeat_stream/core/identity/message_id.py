"""The first layer: an id in a scope, and the continuity of the ids.

A missing, null or declared-invalid id makes the layer abstain. An id that is a whole number (or its
digits) takes part in the continuity check; any other text only identifies.
"""

from collections.abc import Callable

import msgspec

from heartbeat_stream.core.identity.continuity import ContinuityEvent, Oddity
from heartbeat_stream.core.identity.epochs import Move, place_by_field, place_by_time
from heartbeat_stream.core.identity.joining import join_two, part_of
from heartbeat_stream.core.identity.layer import Abstention
from heartbeat_stream.core.identity.rules import EpochMode, Gaps, MessageIdRule
from heartbeat_stream.core.identity.scope_state import Epoch, ScopeState

__all__ = ["IdReading", "MessageIds", "id_key", "number_of"]

_NUMBER_MAX = 10**18
"""Greater ids are text: state holds 64 bits."""

_NO_EPOCH = 0


class IdReading(msgspec.Struct, frozen=True, gc=False):
    """A message's id: its text, its number if it is one, and the text of its epoch's field."""

    text: str
    number: int | None
    epoch: str | None
    scope: bytes
    """What the key begins with: the layer's mark and tag, and the scope."""


class MessageIds:
    """The first layer of one channel."""

    def __init__(self, rule: MessageIdRule, fields: dict[str, Callable[[object], object]]) -> None:
        """``fields`` are ways to the values: of the id, its epoch, and what widens the scope."""
        self._field = rule.field
        self._get = fields[rule.field]
        self._invalid = frozenset(part_of(value, rule.field) for value in rule.invalid)
        self._epoch_field = rule.epoch_field or ""
        self._get_epoch = fields[rule.epoch_field] if rule.epoch_field else None
        self._mode = rule.epoch
        self._confirmations = rule.confirmations
        self._gaps_matter = rule.gaps is Gaps.FORBIDDEN
        self.uses_time = rule.epoch is EpochMode.DETECT

    def read(self, message: object, scope: bytes) -> IdReading | Abstention:
        """The id of a message whose scope is known. Raises Rejected for what can be no id."""
        value = self._get(message)
        if value is None:
            return Abstention.MISSING
        text = part_of(value, self._field)
        if text in self._invalid:
            return Abstention.INVALID
        epoch = None
        if self._get_epoch is not None:
            given = self._get_epoch(message)
            if given is None:
                return Abstention.MISSING
            epoch = part_of(given, self._epoch_field)
        return IdReading(text, number_of(value), epoch, scope)

    def place(self, reading: IdReading, state: ScopeState | None, time_us: int | None) -> Move:
        """In which epoch the id stands, and what its scope becomes if the message is new."""
        number = reading.number
        if reading.epoch is not None:
            if number is None:
                return _unmoved(reading.epoch, state)
            return place_by_field(state, reading.epoch, number)
        if number is None:
            return _unmoved(_NO_EPOCH, state)
        if self.uses_time:
            return place_by_time(state, number, time_us, self._confirmations)
        if state is None:
            return Move(_NO_EPOCH, number, ScopeState(Epoch(_NO_EPOCH, number)))
        newest_id = state.current.newest_id
        if number <= newest_id:
            return Move(_NO_EPOCH, newest_id, state)
        return Move(_NO_EPOCH, newest_id, ScopeState(Epoch(_NO_EPOCH, number)))

    def events_of_new(self, reading: IdReading, move: Move) -> tuple[ContinuityEvent, ...]:
        """What is odd about an id that was not seen before."""
        number, newest_id = reading.number, move.newest_id
        if number is None:
            return ()
        if number < newest_id:
            event = ContinuityEvent(Oddity.OUT_OF_ORDER, move.epoch, number, newest_id)
            return (*move.events, event)
        if number > newest_id + 1 and self._gaps_matter:
            missing = number - newest_id - 1
            event = ContinuityEvent(Oddity.GAP, move.epoch, number, newest_id, missing)
            return (*move.events, event)
        return move.events


def id_key(scope: bytes, epoch: int | str, text: str) -> bytes:
    """The key of an id: one for each scope, epoch and id."""
    return scope + join_two(str(epoch), text)


def number_of(value: object) -> int | None:
    """The whole number that an id is or spells, below 10**18 on either side; else None."""
    if type(value) is int:
        return value if -_NUMBER_MAX < value < _NUMBER_MAX else None
    if type(value) is not str or not value.isascii() or not value.isdigit():
        return None
    if len(value) > 18 or (value[0] == "0" and len(value) > 1):
        return None
    return int(value)


def _unmoved(epoch: int | str, state: ScopeState | None) -> Move:
    """For an id that is no number: the sequence does not know about it."""
    return Move(epoch, 0, state)
