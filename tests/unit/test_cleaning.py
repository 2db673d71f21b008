"""Which copy of an event is kept, and what becomes of the others."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heartbeat_stream.core.cleaning import Place, StoredCopy, Verdicts, judge_group

AT = datetime(2026, 11, 30, tzinfo=UTC)

groups = st.lists(
    st.builds(
        StoredCopy,
        st.builds(Place, st.sampled_from("ab"), st.integers(0, 2), st.integers(0, 9), st.just(AT)),
        st.none() | st.integers(-2, 2),
        st.none() | st.sampled_from(["", "x", "du-", "du-x", "du-du-x"]),
    ),
    min_size=1,
    max_size=5,
    unique_by=lambda copy: copy.place,
)


def copy(
    offset: int, flush_time_ms: int | None, remark: str | None = None, partition: int = 0
) -> StoredCopy:
    return StoredCopy(Place("t", partition, offset, AT), flush_time_ms, remark)


def done(copies: list[StoredCopy], verdicts: Verdicts) -> list[StoredCopy]:
    """What is stored afterwards."""
    remarks = {one.place: one.after for one in (*verdicts.unmark, *verdicts.mark)}
    gone = set(verdicts.delete)
    return [
        one._replace(remark=remarks.get(one.place, one.remark))
        for one in copies
        if one.place not in gone
    ]


@pytest.mark.parametrize(
    "in_order",
    [
        [copy(9, 1), copy(1, 2), copy(0, 3)],  # the smallest flush time, wherever it stands
        [copy(1, 5), copy(2, 5), copy(3, 5)],  # a tie: as they stand
        [copy(9, 5, partition=0), copy(1, 5, partition=1)],
        [copy(3, 7), copy(1, None), copy(2, None)],  # without one: behind all that have one
        [copy(1, None), copy(2, None)],
        [copy(2, -1), copy(1, 0)],
    ],
)
def test_the_one_that_was_flushed_first_is_kept(in_order: list[StoredCopy]) -> None:
    kept, *others = in_order
    for some in permutations(in_order):
        verdicts = judge_group(some)
        assert verdicts.unmark == []
        assert sorted(one.place for one in verdicts.mark) == sorted(one.place for one in others)
        assert all(one.after == "du-" for one in verdicts.mark)
        assert kept.place not in judge_group(some, delete=True).delete


def test_the_kept_one_loses_its_mark_and_the_others_have_one_mark() -> None:
    verdicts = judge_group([copy(1, 1, "du-x"), copy(2, 2, "x"), copy(3, 3, "du-x")])
    assert [(one.place.offset, one.before, one.after) for one in verdicts.unmark] == [
        (1, "du-x", "x")
    ]
    assert [(one.place.offset, one.before, one.after) for one in verdicts.mark] == [
        (2, "x", "du-x")
    ]
    assert verdicts.delete == []


def test_a_single_one_is_no_copy() -> None:
    assert judge_group([copy(1, 1, "x")]) == Verdicts([], [], [])
    assert [one.after for one in judge_group([copy(1, 1, "du-")]).unmark] == [None]


@given(groups, st.booleans())
def test_afterwards_exactly_one_counts_and_nothing_more_is_to_be_done(
    copies: list[StoredCopy], delete: bool
) -> None:
    left = done(copies, judge_group(copies, delete=delete))
    unmarked = [one for one in left if not (one.remark or "").startswith("du-")]
    assert len(unmarked) == 1
    assert len(left) == (1 if delete else len(copies))
    assert judge_group(left, delete=delete) == Verdicts([], [], [])
