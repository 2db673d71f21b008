"""Ids that skip, repeat, come out of order and start again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heartbeat_stream.core.identity.continuity import ContinuityEvent, Oddity
from heartbeat_stream.core.identity.epochs import OLDER_MAX, place_by_field, place_by_time
from heartbeat_stream.core.identity.layer import Abstention, Layer
from heartbeat_stream.core.identity.message_id import number_of
from heartbeat_stream.core.identity.rules import EpochMode, Gaps, JobRules
from heartbeat_stream.core.identity.scope_state import Epoch, Fall, ScopeState
from tests.support.identity import SCOPE, T0, Job, ids, key, market, message, odd

ID = Layer.MESSAGE_ID
GAP, REPEAT, OUT_OF_ORDER, RESET = Oddity


def detecting(**changes: Any) -> JobRules:
    """Only the first layer, so that no other one can make up for its mistakes."""
    return market(ids(epoch=EpochMode.DETECT, **changes))


def at(seq: int | str, ts: int, **more: Any) -> dict[str, Any]:
    return message(seq=seq, ts=T0 + ts, **more)


def run(job: Job, *pairs: tuple[int, int]) -> str:
    """``n`` for a new message, ``d`` for a duplicate."""
    return "".join("n" if job.take(at(seq, ts)).is_new else "d" for seq, ts in pairs)


# -- continuity ---------------------------------------------------------------------------------


def test_gaps_are_told_only_where_they_are_forbidden() -> None:
    forbidden, allowed = Job(market(ids(gaps=Gaps.FORBIDDEN))), Job(market(ids()))
    for job in (forbidden, allowed):
        job.take(at(1, 1))
        assert job.take(at(2, 2)).events == ()
    assert allowed.take(at(7, 3)).events == ()
    assert forbidden.take(at(7, 3)).events == (ContinuityEvent(GAP, 0, 7, 2, missing=4),)


def test_a_repeat_and_an_id_out_of_order() -> None:
    job = Job(market(ids(gaps=Gaps.FORBIDDEN)))
    for seq in (1, 3):
        job.take(at(seq, seq))
    assert job.take(at(3, 3)).events == (ContinuityEvent(REPEAT, 0, 3, 3),)
    assert job.take(at(2, 2)).events == (ContinuityEvent(OUT_OF_ORDER, 0, 2, 3),)
    assert job.take(at(2, 2)).events == (ContinuityEvent(REPEAT, 0, 2, 3),)
    assert job.take(at(4, 4)).events == ()


def test_what_another_layer_recognised_is_of_another_numbering() -> None:
    job = Job(market(ids(gaps=Gaps.FORBIDDEN), key("ts")))
    job.take(at(1, 1))
    other = job.take(at(9_000, 1))
    assert other.layer is Layer.BUSINESS_KEY
    assert other.events == ()
    assert job.take(at(2, 2)).events == ()


def test_scopes_have_sequences_of_their_own() -> None:
    job = Job(market(ids(gaps=Gaps.FORBIDDEN, scope=(*SCOPE, "source"))))
    for source, seq in (("a", 1), ("b", 100), ("a", 2), ("b", 101)):
        assert job.take(at(seq, seq, source=source)).events == ()
    assert job.take(at(3, 3)).abstained == ((ID, Abstention.MISSING),)


@pytest.mark.parametrize("seq", ["x-1", "007", "1.0", 10**18, "-", "١"])
def test_an_id_that_is_no_number_only_identifies(seq: int | str) -> None:
    job = Job(market(ids(gaps=Gaps.FORBIDDEN)))
    job.take(at(1, 1))
    verdict = job.take(at(seq, 2))
    assert (verdict.is_new, verdict.events) == (True, ())
    assert job.take(at(seq, 2)).layer is ID
    assert job.take(at(2, 2)).events == ()
    assert number_of(seq) is None


def test_an_id_may_be_spelled_by_its_digits() -> None:
    assert number_of("12") == number_of(12) == 12
    assert number_of("9" * 18) == 10**18 - 1
    job = Job(market(ids(gaps=Gaps.FORBIDDEN)))
    job.take(at("12", 1))
    assert job.take(at(15, 2)).events == (ContinuityEvent(GAP, 0, 15, 12, missing=2),)


def test_without_epochs_an_id_is_one_message_for_as_long_as_it_is_remembered() -> None:
    assert run(Job(market(ids())), (1, 1), (2, 2), (1, 3), (3, 4)) == "nndn"


# -- epochs by a field --------------------------------------------------------------------------


def test_a_field_tells_where_ids_start_again() -> None:
    job = Job(market(ids(epoch=EpochMode.FIELD, epoch_field="conn", gaps=Gaps.FORBIDDEN)))

    def take(conn: Any, seq: int) -> tuple[bool, list[Oddity]]:
        verdict = job.take(at(seq, seq, conn=conn))
        return verdict.is_new, odd(verdict)

    assert [take("a", seq) for seq in (1, 2, 3)] == [(True, [])] * 3
    assert take("b", 1) == (True, [RESET])
    assert take("b", 2) == (True, [])
    assert take("a", 2) == (False, [REPEAT])
    assert take("a", 4) == (True, []), "a late one of the old connection"
    assert take("b", 3) == (True, []), "two connections may alternate"
    assert take("b", 5) == (True, [GAP])
    assert take("c", 1) == (True, [RESET])
    assert job.take(at(7, 7)).abstained == ((ID, Abstention.MISSING),)


def test_a_late_one_moves_its_own_epoch_alone() -> None:
    older = (Epoch("c", 3), Epoch("b", 2), Epoch("a", 1))
    state = place_by_field(ScopeState(Epoch("d", 4), older), "b", 7).state
    assert state == ScopeState(Epoch("d", 4), (Epoch("c", 3), Epoch("b", 7), Epoch("a", 1)))


# -- epochs that are detected -------------------------------------------------------------------


def test_a_restart_is_new_and_a_replay_is_not() -> None:
    job = Job(detecting())
    assert run(job, *((seq, seq) for seq in range(1, 11))) == "n" * 10
    assert run(job, (1, 11), (2, 12), (3, 13), (4, 14)) == "nnnn", "ids from 1 on, at later times"
    assert run(job, *((seq, seq) for seq in range(1, 11))) == "d" * 10, "the old ones once more"
    assert run(job, (1, 11), (2, 12), (3, 13), (4, 14)) == "dddd"
    assert run(job, (5, 15), (6, 16)) == "nn"


def test_a_reset_is_told_once_the_following_messages_confirm_it() -> None:
    job = Job(detecting(confirmations=3, gaps=Gaps.FORBIDDEN))
    for seq in range(1, 11):
        job.take(at(seq, seq))
    assert odd(job.take(at(1, 11))) == []
    assert odd(job.take(at(1, 11))) == [REPEAT], "which confirms nothing"
    assert odd(job.take(at(2, 12))) == []
    assert job.take(at(3, 13)).events == (ContinuityEvent(RESET, 1, 1, 10),)
    assert odd(job.take(at(4, 14))) == []
    assert odd(job.take(at(6, 15))) == [GAP]


def test_a_fall_within_one_microsecond_begins_nothing() -> None:
    state = ScopeState(Epoch(0, 10, 1, 10))
    assert place_by_time(state, 3, 10, 3).state == state
    begun = place_by_time(state, 3, 11, 3).state
    assert begun == ScopeState(Epoch(1, 3, 11, 11), (state.current,), Fall(3, 1), 2)
    again = place_by_time(begun, 2, 12, 3).state
    assert again is not None
    assert (again.current.name, again.next_number) == (2, 3)


def test_an_epoch_begins_with_its_earliest_message_which_may_come_late() -> None:
    before = Epoch(0, 101, 100, 101)
    state = ScopeState(Epoch(1, 5, 110, 115), (before,), None, 2)
    late = place_by_time(state, 2, 108, 3).state
    assert late == ScopeState(Epoch(1, 5, 108, 115), (before,), None, 2)


def test_a_fall_after_which_the_old_sequence_goes_on_was_out_of_order() -> None:
    job = Job(detecting(gaps=Gaps.FORBIDDEN))
    for seq in range(1, 11):
        job.take(at(seq, seq))
    assert odd(job.take(at(5, 11))) == []
    assert job.take(at(11, 12)).events == (ContinuityEvent(OUT_OF_ORDER, 1, 5, 10),)
    assert odd(job.take(at(12, 13))) == []
    assert run(job, (5, 5), (5, 11), (11, 12), (10, 10)) == "dddd"


def test_a_late_one_from_before_the_restart_disturbs_nothing() -> None:
    job = Job(detecting(gaps=Gaps.FORBIDDEN))
    assert run(job, (100, 100), (101, 101), (1, 110)) == "nnn"
    late = job.take(at(102, 102))
    assert (late.is_new, late.events) == (True, ())
    assert [odd(job.take(at(seq, 109 + seq))) for seq in (2, 3, 4)] == [[], [RESET], []]
    assert run(job, (102, 102), (1, 110), (4, 113), (5, 114)) == "dddn"


def test_the_same_id_again_at_a_later_time_is_a_repeat() -> None:
    """Only an id that falls starts an epoch."""
    assert run(Job(detecting()), (5, 1), (5, 2), (6, 3)) == "ndn"


def test_many_restarts() -> None:
    job = Job(detecting())
    runs = [[(seq, 100 * number + seq) for seq in range(1, 6)] for number in range(OLDER_MAX)]
    for each in runs:
        assert run(job, *each) == "nnnnn"
    for number, each in enumerate(runs):
        firsts = [job.take(at(seq, ts)).first for seq, ts in each]
        offsets = [first and first.offset for first in firsts]
        assert offsets == [5 * number + place for place in range(5)]


def test_messages_without_a_time_belong_to_the_current_epoch() -> None:
    job = Job(detecting())
    run(job, (1, 1), (2, 2), (3, 3))
    assert job.take(message(seq=4, ts=...)).is_new
    assert not job.take(message(seq=4, ts=...)).is_new
    assert not job.take(message(seq=2, ts=...)).is_new


@st.composite
def deliveries(draw: st.DrawFn) -> list[tuple[int, int, bool]]:
    """(id, time, is it a copy): a few runs of a sequence, neighbours swapped, with copies."""
    originals: list[tuple[int, int]] = []
    clock = 0
    for _ in range(draw(st.integers(1, 5))):
        seq = draw(st.integers(1, 3))
        for _ in range(draw(st.integers(8, 12))):
            clock += draw(st.integers(1, 2))
            originals.append((seq, clock))
            seq += draw(st.integers(1, 2))
    for place in draw(st.lists(st.integers(0, len(originals) - 2), max_size=4)):
        originals[place], originals[place + 1] = originals[place + 1], originals[place]
    sent: list[tuple[int, int, bool]] = []
    for original in originals:
        sent.append((*original, False))
        for seq, time, _ in draw(st.lists(st.sampled_from(sent), max_size=2)):
            sent.append((seq, time, True))
    return sent


@settings(max_examples=150, deadline=None)
@given(deliveries())
def test_no_new_message_is_taken_for_an_old_one_and_no_replay_for_new(
    sent: list[tuple[int, int, bool]],
) -> None:
    job = Job(detecting())
    for seq, time, is_copy in sent:
        verdict = job.take(at(seq, time))
        assert verdict.is_new is not is_copy, (seq, time)
        assert (REPEAT in odd(verdict)) is is_copy
        for key_, state in job.memory.states.items():
            job.memory.states[key_] = ScopeState.from_bytes(state.to_bytes())


def test_a_sequence_that_was_forgotten_after_its_ids_were_held_goes_on_without_a_gap() -> None:
    """As after a crash in which identities became durable, and the state of the scope did not."""
    job = Job(detecting(gaps=Gaps.FORBIDDEN))
    job.take(at(1, 1))
    before = dict(job.memory.states)
    assert run(job, (2, 2), (3, 3)) == "nn"
    job.memory.states = before
    assert run(job, (2, 2), (3, 3)) == "dd"
    assert job.take(at(4, 4)).events == ()
    job.memory.states = dict(before)
    assert run(job, (1, 1)) == "d"
    assert job.memory.states == before


# -- state --------------------------------------------------------------------------------------


def test_the_state_of_a_scope_as_bytes() -> None:
    for state in (
        ScopeState(Epoch(0, 5)),
        ScopeState(Epoch("conn-1", 5, None, None), (Epoch("conn-0", 2**62),)),
        ScopeState(Epoch(2, 5, T0, T0 + 1), (Epoch(0, 9, 1, 2),) * OLDER_MAX, Fall(5, 1), 3),
    ):
        assert ScopeState.from_bytes(state.to_bytes()) == state
    assert len(ScopeState(Epoch(0, 10**9, T0, T0)).to_bytes()) <= 40
    for data in (b"", b"\xc0", b"\x91\x01", ScopeState(Epoch(0, 5)).to_bytes()[:-1]):
        with pytest.raises(ValueError, match="not the state of a scope"):
            ScopeState.from_bytes(data)


def test_judging_leaves_the_given_state_alone() -> None:
    job = Job(detecting())
    before = job.take(at(1, 1)).state
    assert before is not None
    copy = before.to_bytes()
    assert job.take(at(2, 2)).state != before
    assert before.to_bytes() == copy
    duplicate = job.take(at(2, 2))
    assert duplicate.state is job.memory.states.popitem()[1]
