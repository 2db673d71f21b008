"""In which run of its sequence an id stands, where ids may start again.

With ``epoch = "field"`` a field of the message names the run. With ``epoch = "detect"`` exchange
times tell: a replayed message brings its old time along, so it belongs to the run of that time; an
id that falls while the time rises may be the first of a new run. That run is a *candidate* until
the following messages confirm it, and is judged as one of its own from its first message on: it is
not taken for old, and what repeats it is found. Should the old sequence go on instead, the
candidate is dropped. What came in it was recorded in both runs, so nothing is lost by the doubt.

A fall within one microsecond of exchange time is not recognised, nor one without a time.
"""

import msgspec

from heartbeat_stream.core.identity.continuity import ContinuityEvent, Oddity
from heartbeat_stream.core.identity.scope_state import Candidate, Epoch, ScopeState

__all__ = ["OLDER_MAX", "Move", "place_by_field", "place_by_time"]

OLDER_MAX = 8
"""So many older epochs are told apart; what is older than all belongs to the oldest."""


class Move(msgspec.Struct, frozen=True, gc=False):
    """Where an id stands, and what becomes of the scope once its message is judged new.

    ``epoch`` is the name under which to look the id up. ``doubt`` is the name of the epoch in which
    it must be recorded as well, or None. ``newest_id`` is the greatest of the epoch before it.
    """

    epoch: int | str
    newest_id: int
    state: ScopeState | None
    doubt: int | str | None = None
    events: tuple[ContinuityEvent, ...] = ()


def place_by_field(state: ScopeState | None, name: str, number: int) -> Move:
    """The epoch is what the field says."""
    if state is None:
        return Move(name, number, ScopeState(Epoch(name, number)))
    current = state.current
    if current.name == name:
        return Move(name, current.newest_id, _replace_current(state, _grown(current, number, None)))
    for place, epoch in enumerate(state.older):
        if epoch.name == name:  # late ones of a connection that was replaced, or two that alternate
            grown = _grown(epoch, number, None)
            older = (*state.older[:place], grown, *state.older[place + 1 :])
            return Move(name, epoch.newest_id, msgspec.structs.replace(state, older=older))
    reset = ContinuityEvent(Oddity.RESET, name, number, current.newest_id)
    older = (current, *state.older)[:OLDER_MAX]
    return Move(name, number, ScopeState(Epoch(name, number), older), events=(reset,))


def place_by_time(
    state: ScopeState | None, number: int, time_us: int | None, confirmations: int
) -> Move:
    """The epoch is what the exchange's time says; ``confirmations`` messages make a new one."""
    if state is None:
        return Move(0, number, ScopeState(Epoch(0, number, time_us, time_us)))
    current = state.current
    if time_us is not None and current.newest_us is not None:
        if time_us > current.newest_us:
            if state.candidate is not None:
                return _beside_candidate(state, state.candidate, number, time_us, confirmations)
            if number < current.newest_id:
                return _start_candidate(state, number, time_us, ())
        elif state.older and _is_older(state, number, time_us):
            return _in_older(state, time_us)
    grown = _grown(current, number, time_us)
    return Move(current.name, current.newest_id, _replace_current(state, grown))


def _beside_candidate(
    state: ScopeState, candidate: Candidate, number: int, time_us: int, confirmations: int
) -> Move:
    """Where an id stands whose time lies behind all of the current epoch."""
    current, epoch = state.current, candidate.epoch
    if number > current.newest_id and number != epoch.newest_id + 1:
        if time_us >= _start(epoch):
            return _drop_candidate(state, candidate, number, time_us)
        grown = _grown(current, number, time_us)  # a late one from just before the fall
        return Move(current.name, current.newest_id, _replace_current(state, grown))
    if number < candidate.first_id and time_us > _newest(epoch):
        return _start_candidate(state, number, time_us, (_unconfirmed(state, candidate),))
    counted = candidate.confirmations + (number > epoch.newest_id)
    grown = _grown(epoch, number, time_us)
    if counted >= confirmations:
        return _adopt(state, candidate, grown)
    first_id = min(candidate.first_id, number)
    changed = ScopeState(
        current, state.older, Candidate(grown, first_id, counted), state.next_number
    )
    return Move(epoch.name, epoch.newest_id, changed, doubt=current.name)


def _start_candidate(
    state: ScopeState, number: int, time_us: int, events: tuple[ContinuityEvent, ...]
) -> Move:
    epoch = Epoch(state.next_number, number, time_us, time_us)
    begun = ScopeState(
        state.current, state.older, Candidate(epoch, number, 1), state.next_number + 1
    )
    return Move(epoch.name, number, begun, doubt=state.current.name, events=events)


def _adopt(state: ScopeState, candidate: Candidate, grown: Epoch) -> Move:
    reset = ContinuityEvent(Oddity.RESET, grown.name, candidate.first_id, state.current.newest_id)
    older = (state.current, *state.older)[:OLDER_MAX]
    adopted = ScopeState(grown, older, None, state.next_number)
    return Move(grown.name, candidate.epoch.newest_id, adopted, events=(reset,))


def _drop_candidate(state: ScopeState, candidate: Candidate, number: int, time_us: int) -> Move:
    """The old sequence goes on: what fell was out of order. It counts as part of that sequence."""
    newest_us = max(time_us, _newest(candidate.epoch))
    grown = _grown(state.current, number, newest_us)
    dropped = ScopeState(grown, state.older, None, state.next_number)
    event = _unconfirmed(state, candidate)
    return Move(state.current.name, state.current.newest_id, dropped, events=(event,))


def _unconfirmed(state: ScopeState, candidate: Candidate) -> ContinuityEvent:
    current = state.current
    return ContinuityEvent(Oddity.OUT_OF_ORDER, current.name, candidate.first_id, current.newest_id)


def _is_older(state: ScopeState, number: int, time_us: int) -> bool:
    """Whether a message belongs to an epoch before the current one."""
    before = state.older[0]
    if time_us <= _newest(before):
        return True
    # Between the two: new ids are low, and late ones of the old sequence are high.
    return time_us < _start(state.current) and number > before.newest_id


def _in_older(state: ScopeState, time_us: int) -> Move:
    found = state.older[0]
    for epoch in state.older:
        if time_us > _newest(epoch):
            break
        found = epoch
    return Move(found.name, found.newest_id, state)


def _grown(epoch: Epoch, number: int, time_us: int | None) -> Epoch:
    start_us, newest_us = epoch.start_us, epoch.newest_us
    if time_us is not None:
        start_us = time_us if start_us is None or time_us < start_us else start_us
        newest_us = time_us if newest_us is None or time_us > newest_us else newest_us
    newest_id = number if number > epoch.newest_id else epoch.newest_id
    return Epoch(epoch.name, newest_id, start_us, newest_us)


def _replace_current(state: ScopeState, current: Epoch) -> ScopeState:
    return ScopeState(current, state.older, state.candidate, state.next_number)


def _start(epoch: Epoch) -> int:
    return epoch.start_us or 0


def _newest(epoch: Epoch) -> int:
    return epoch.newest_us or 0
