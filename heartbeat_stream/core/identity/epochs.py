"""In which run of its sequence an id stands, where ids may start again.

With ``epoch = "field"`` a field of the message names the run. With ``epoch = "detect"`` exchange
times tell. When an id falls while the time rises, a new epoch begins, and its name goes into the
keys of all messages with a time behind the newest of the epoch before. So the names divide the
exchange's time: a replayed message brings its old time along, comes under the name that it had,
and is found; a new message with an old id comes under another name, and passes.

Whether the fall was a restart is for the following messages to say: when so many ids have risen
from it, the sequence is reported as reset; when the old one goes on instead, the one that fell was
out of order. Verdicts don't depend on it.

A fall that brings no later time along is not recognised: within one microsecond, or where new
messages overtake others of a sequence that had only begun. Nor is one without times.
"""

import msgspec

from heartbeat_stream.core.identity.continuity import ContinuityEvent, Oddity
from heartbeat_stream.core.identity.scope_state import Epoch, Fall, ScopeState

__all__ = ["OLDER_MAX", "Move", "place_by_field", "place_by_time"]

OLDER_MAX = 32
"""So many older epochs are told apart; what is older than all belongs to the oldest."""


class Move(msgspec.Struct, frozen=True, gc=False):
    """Where an id stands, and what becomes of its scope once its message is judged new.

    ``epoch`` is the name under which to look the id up; ``newest_id`` is the one to compare it
    with, the id itself where there is none before it.
    """

    epoch: int | str
    newest_id: int
    state: ScopeState | None
    events: tuple[ContinuityEvent, ...] = ()


def place_by_field(state: ScopeState | None, name: str, number: int) -> Move:
    """The epoch is what the field says."""
    if state is None:
        return Move(name, number, ScopeState(Epoch(name, number)))
    current = state.current
    if current.name == name:
        return Move(name, current.newest_id, _with_current(state, _grown(current, number, None)))
    for place, epoch in enumerate(state.older):
        if epoch.name == name:  # late ones of a connection that was replaced, or two that alternate
            older = (*state.older[:place], _grown(epoch, number, None), *state.older[place + 1 :])
            return Move(name, epoch.newest_id, ScopeState(current, older))
    reset = ContinuityEvent(Oddity.RESET, name, number, current.newest_id)
    older = (current, *state.older)[:OLDER_MAX]
    return Move(name, number, ScopeState(Epoch(name, number), older), (reset,))


def place_by_time(
    state: ScopeState | None, number: int, time_us: int | None, confirmations: int
) -> Move:
    """The epoch is what the exchange's time says; ``confirmations`` messages make it a reset."""
    if state is None:
        return Move(0, number, ScopeState(Epoch(0, number, time_us, time_us)))
    current = state.current
    if time_us is not None and current.newest_us is not None:
        if time_us > current.newest_us:
            if number < current.newest_id:
                return _begin_epoch(state, number, time_us)
        elif state.older:
            if time_us <= _newest(state.older[0]):
                return _in_older(state, number, time_us)
            if time_us < (current.start_us or 0) and number > state.older[0].newest_id:
                return _late_before_fall(state, number, time_us)
    grown = _grown(current, number, time_us)
    if state.fall is not None:
        return _after_fall(state, state.fall, grown, number, confirmations)
    return Move(current.name, current.newest_id, _with_current(state, grown))


def _begin_epoch(state: ScopeState, number: int, time_us: int) -> Move:
    epoch = Epoch(state.next_number, number, time_us, time_us)
    older = (state.current, *state.older)[:OLDER_MAX]
    begun = ScopeState(epoch, older, Fall(number, 1), state.next_number + 1)
    events = () if state.fall is None else (_out_of_order(state, state.fall),)
    return Move(epoch.name, number, begun, events)


def _after_fall(
    state: ScopeState, fall: Fall, grown: Epoch, number: int, confirmations: int
) -> Move:
    current, before = state.current, state.older[0]
    counted = fall.confirmations + (number > current.newest_id)
    if number > before.newest_id and number != current.newest_id + 1:
        settled = ScopeState(grown, state.older, None, state.next_number)
        return Move(current.name, before.newest_id, settled, (_out_of_order(state, fall),))
    if counted >= confirmations:
        reset = ContinuityEvent(Oddity.RESET, current.name, fall.first_id, before.newest_id)
        settled = ScopeState(grown, state.older, None, state.next_number)
        return Move(current.name, current.newest_id, settled, (reset,))
    still = Fall(min(fall.first_id, number), counted)
    open_ = ScopeState(grown, state.older, still, state.next_number)
    return Move(current.name, current.newest_id, open_)


def _out_of_order(state: ScopeState, fall: Fall) -> ContinuityEvent:
    """What the fall was, now that the following messages did not confirm it."""
    newest_id = state.older[0].newest_id
    return ContinuityEvent(Oddity.OUT_OF_ORDER, state.current.name, fall.first_id, newest_id)


def _late_before_fall(state: ScopeState, number: int, time_us: int) -> Move:
    """The old sequence's last ones may come when the new one has begun: they end the old epoch."""
    before = state.older[0]
    older = (_grown(before, number, time_us), *state.older[1:])
    changed = ScopeState(state.current, older, state.fall, state.next_number)
    return Move(before.name, before.newest_id, changed)


def _in_older(state: ScopeState, number: int, time_us: int) -> Move:
    found = state.older[0]
    for epoch in state.older:
        if time_us > _newest(epoch):
            break
        found = epoch
    return Move(found.name, max(found.newest_id, number), state)


def _grown(epoch: Epoch, number: int, time_us: int | None) -> Epoch:
    start_us, newest_us = epoch.start_us, epoch.newest_us
    if time_us is not None:
        start_us = time_us if start_us is None or time_us < start_us else start_us
        newest_us = time_us if newest_us is None or time_us > newest_us else newest_us
    newest_id = number if number > epoch.newest_id else epoch.newest_id
    return Epoch(epoch.name, newest_id, start_us, newest_us)


def _with_current(state: ScopeState, current: Epoch) -> ScopeState:
    return ScopeState(current, state.older, state.fall, state.next_number)


def _newest(epoch: Epoch) -> int:
    return epoch.newest_us or 0
