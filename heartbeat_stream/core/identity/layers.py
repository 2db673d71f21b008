"""The three layers in their order, and the verdict that they come to."""

from collections.abc import Mapping

import msgspec
from msgspec import Raw

from heartbeat_stream.core.identity.channel import Channel, fields_of
from heartbeat_stream.core.identity.continuity import ContinuityEvent, Oddity
from heartbeat_stream.core.identity.joining import join, part_of
from heartbeat_stream.core.identity.json_values import text_of_number
from heartbeat_stream.core.identity.layer import Abstention, Layer
from heartbeat_stream.core.identity.message import Message, Scope, state_key
from heartbeat_stream.core.identity.message_id import IdReading
from heartbeat_stream.core.identity.reader import Reader
from heartbeat_stream.core.identity.rules import JobRules
from heartbeat_stream.core.identity.scope_state import ScopeState
from heartbeat_stream.core.identity.seen import First, Identity, Seen
from heartbeat_stream.core.identity.tally import Tally
from heartbeat_stream.core.reasons import Reason, Rejected

__all__ = ["Judge", "Message", "Verdict"]

_SCOPES_MAX = 100_000
_SHOWN_MAX = 60
_NAMES = {
    Layer.MESSAGE_ID: "the same message id",
    Layer.BUSINESS_KEY: "the same business key",
    Layer.FINGERPRINT: "the same content",
}


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """What was decided about one message.

    New: ``layer`` and ``first`` are None, and ``record`` holds every identity that the message is
    to be recorded under. A duplicate: ``layer`` recognised it, ``first`` is the message that it
    repeats, and ``record`` is empty.
    """

    layer: Layer | None
    first: First | None
    record: tuple[Identity, ...]
    state: ScopeState | None
    """The sequence's state from now on; the one that was given, itself, if nothing has changed."""
    events: tuple[ContinuityEvent, ...]
    abstained: tuple[tuple[Layer, Abstention], ...]

    @property
    def is_new(self) -> bool:
        return self.layer is None

    @property
    def reason(self) -> str:
        """A few words for a header: what decided, and which layers abstained, and why."""
        decided = "new" if self.layer is None else _NAMES[self.layer]
        return "; ".join([decided, *[f"{layer} abstained: {why}" for layer, why in self.abstained]])


class Judge:
    """Judges the messages of one job. Holds no state but caches; 5 to 10 us for a new message."""

    def __init__(self, rules: JobRules) -> None:
        self._rules = rules
        self._reader = Reader(fields_of(rules))
        self._channels = {
            name: Channel(name, channel, rules, self._reader)
            for name, channel in rules.channels.items()
        }
        self._scope_fields = tuple(dict.fromkeys((rules.channel_field, *rules.scope)))
        self._scope_values = self._reader.getters(*self._scope_fields)
        self._scopes: dict[tuple[object, ...], Scope] = {}

    # -- reading ---------------------------------------------------------------------------------

    def read(self, value: bytes) -> Message:
        """Read a record's value as far as its scope, its channel and its id.

        Raises :class:`~heartbeat_stream.core.reasons.Rejected` for what cannot be judged.
        """
        fields = self._reader.read(value)
        values = self._scope_values(fields)
        try:
            scope = self._scopes.get(values)
        except TypeError:  # a list or an object, which is no part of a key
            scope = None
        if scope is None:
            scope = self._make_scope(values)
        channel = scope.channel
        if channel.ids is None:
            return Message(value, fields, scope, Abstention.MISSING, None)
        if channel.id_scope_fields:
            start = self._wider_scope(fields, scope)
            if start is None:
                return Message(value, fields, scope, Abstention.MISSING, None)
            key = state_key(start)
        else:
            start, key = scope.id_start, scope.state_key
        id_ = channel.ids.read(fields, start)
        return Message(value, fields, scope, id_, key if type(id_) is IdReading else None)

    def _make_scope(self, values: tuple[object, ...]) -> Scope:
        parts = {}
        for field, value in zip(self._scope_fields, values, strict=True):
            if value is None:
                detail = f"{ascii(field)[:60]} should be there and not null"
                raise Rejected(Reason.MISSING_SCOPE_FIELD, detail)
            parts[field] = part_of(value, field)
        name = parts[self._rules.channel_field]
        channel = self._channels.get(name) or self._channels.get("*")
        if channel is None:
            known = ", ".join(ascii(known) for known in self._channels)
            detail = f"the channel is {ascii(name)[:60]}, should be one of {known}"
            raise Rejected(Reason.UNKNOWN_CHANNEL, detail)
        shown = dict(zip(self._scope_fields, map(_shown, values), strict=True))
        scope = Scope(channel, join(parts[field] for field in self._rules.scope), shown)
        # Only texts: True is equal to 1, and would be taken for it.
        if all(type(value) is str for value in values):
            if len(self._scopes) >= _SCOPES_MAX:
                self._scopes.clear()
            self._scopes[values] = scope
        return scope

    def _wider_scope(self, fields: object, scope: Scope) -> bytes | None:
        """The scope with what the id's has beyond the job's; None if something is missing."""
        parts = []
        for field in scope.channel.id_scope_fields:
            value = self._reader.getter(field)(fields)
            if value is None:
                return None
            parts.append(part_of(value, field))
        return scope.id_start + join(parts)

    # -- judging ---------------------------------------------------------------------------------

    def judge(
        self,
        message: Message,
        seen: Seen,
        state: ScopeState | None,
        now_ms: int,
        tally: Tally,
    ) -> Verdict:
        """Decide. ``now_ms`` is the record's timestamp: with it, times to live are measured.

        ``state`` is what was last returned for the message's ``state_key``. A layer's key is made,
        and looked up, only if those before it passed the message. Raises
        :class:`~heartbeat_stream.core.reasons.Rejected` for a message with a time or a number that
        the rules don't allow; the state is then as it was.
        """
        tally.messages += 1
        timer = tally.timer if tally.messages % tally.sample == 0 else None
        record: list[Identity] = []
        abstained: tuple[tuple[Layer, Abstention], ...] = ()
        get, in_order = seen.get, tally.in_order
        for step in message.scope.channel.steps:
            started = timer() if timer is not None else 0
            counts = in_order[step.place]
            key = step.key(message, state)
            if type(key) is not bytes:
                counts.abstentions += 1
                abstained = (*abstained, (step.layer, key))  # type: ignore[arg-type]
                continue
            counts.checks += 1
            first = get(key)
            if timer is not None:
                counts.timed += 1
                counts.timed_ns += timer() - started
            if first is not None and now_ms - first.seen_at_ms < step.ttl_ms:
                counts.hits += 1
                if step.place == 0:
                    return _repeated(message, first, state)
                return Verdict(step.layer, first, (), state, (), abstained)
            record.append(Identity(step.layer, key, step.ttl_ms))
        return _new(message, state, tuple(record), abstained)

    def scope_of(self, message: Message) -> Mapping[str, str]:
        """The fields that decide about the partition, by name, with their values as text."""
        return message.scope.shown

    def time_us(self, message: Message) -> int | None:
        """The exchange's time of a message in microseconds. None: it has none, or an odd one."""
        try:
            return message.time_us()
        except Rejected:
            return None

    def explain(self, message: Message, verdict: Verdict) -> str:
        """One line for people: the fields and values that decided, made only when asked for."""
        if verdict.layer is None:
            return verdict.reason
        rules = self._rules.channels[message.channel]
        names: tuple[str, ...] = ()
        if verdict.layer is Layer.MESSAGE_ID and rules.message_id is not None:
            epoch = (rules.message_id.epoch_field,) if rules.message_id.epoch_field else ()
            names = (*rules.message_id.scope, *epoch, rules.message_id.field)
        elif verdict.layer is Layer.BUSINESS_KEY and rules.business_key is not None:
            names = rules.business_key.fields
        values = [f"{name}={_shown(self._reader.getter(name)(message.fields))}" for name in names]
        return f"{verdict.reason}: {' '.join(values)}" if values else verdict.reason


def _repeated(message: Message, first: First, state: ScopeState | None) -> Verdict:
    """The first layer has recognised the message."""
    reading, move = message.id, message.move
    if type(reading) is not IdReading or reading.number is None or move is None:
        return Verdict(Layer.MESSAGE_ID, first, (), state, (), ())
    event = ContinuityEvent(Oddity.REPEAT, move.epoch, reading.number, move.newest_id)
    if reading.number > move.newest_id:
        # State is from before the message, as after a crash: with it, a gap would be told next.
        state = move.state
    return Verdict(Layer.MESSAGE_ID, first, (), state, (event,), ())


def _new(
    message: Message,
    state: ScopeState | None,
    record: tuple[Identity, ...],
    abstained: tuple[tuple[Layer, Abstention], ...],
) -> Verdict:
    move, reading, ids = message.move, message.id, message.scope.channel.ids
    if move is None or ids is None or type(reading) is not IdReading:
        return Verdict(None, None, record, state, (), abstained)
    events = ids.events_of_new(reading, move)
    return Verdict(None, None, record, move.state, events, abstained)


def _shown(value: object) -> str:
    text = text_of_number(value) if type(value) is Raw else str(value)
    return text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "..."
