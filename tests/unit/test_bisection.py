"""Narrowing down: who is found, who lands, in which order, and how many attempts it costs."""

import asyncio
import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heartbeat_stream.sinks.bisection import land
from heartbeat_stream.sinks.postgres_errors import RowFault, SinkUnavailable


class Database:
    """Refuses every group that holds one of the guilty rows, and may go away."""

    def __init__(self, guilty: set[int], goes_away_at: int | None = None) -> None:
        self.guilty = guilty
        self.landed: list[int] = []
        self.attempts = 0
        self._goes_away_at = goes_away_at

    async def attempt(self, group: Sequence[int]) -> RowFault | None:
        self.attempts += 1
        assert group, "an attempt without rows"
        if self.attempts == self._goes_away_at:
            raise SinkUnavailable("connection", "gone")
        bad = self.guilty.intersection(group)
        if bad:
            return RowFault("23514", f"23514 {min(bad)}")
        self.landed += group
        return None


def landing(rows: int, guilty: set[int]) -> Database:
    """Land rows 0 to n - 1 and check that exactly the guilty ones were kept out."""
    database = Database(guilty)
    faults = asyncio.run(land(range(rows), database.attempt))
    assert [(index, fault.detail) for index, fault in faults] == [
        (index, f"23514 {index}") for index in sorted(guilty)
    ]
    assert database.landed == [row for row in range(rows) if row not in guilty]
    return database


def test_a_good_batch_costs_one_attempt() -> None:
    assert landing(5000, set()).attempts == 1


def test_no_rows_cost_nothing() -> None:
    assert landing(0, set()).attempts == 0


@pytest.mark.parametrize("guilty", [0, 1, 2499, 2500, 3333, 4998, 4999])
def test_one_guilty_row_among_5000_costs_about_2_log2(guilty: int) -> None:
    assert landing(5000, {guilty}).attempts <= 2 * math.ceil(math.log2(5000)) + 2


def test_all_guilty_cost_about_one_attempt_each() -> None:
    assert landing(5000, set(range(5000))).attempts <= 5000 + math.ceil(math.log2(5000))


@given(st.integers(1, 300).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1)))))
def test_exactly_the_guilty_are_found_within_the_bound(case: tuple[int, set[int]]) -> None:
    rows, guilty = case
    depth = math.ceil(math.log2(rows)) + 1
    bound = min(2 * rows, 1 + 2 * depth * len(guilty))
    assert landing(rows, guilty).attempts <= bound


def test_a_database_that_goes_away_in_between_is_not_a_row_fault() -> None:
    database = Database({4}, goes_away_at=4)
    with pytest.raises(SinkUnavailable):
        asyncio.run(land(range(16), database.attempt))
    assert 4 not in database.landed


def test_rows_that_only_fail_together_all_land() -> None:
    # As with a collation for which two keys of a batch are one: alone, each is fine.
    landed: list[int] = []

    async def attempt(group: Sequence[int]) -> RowFault | None:
        if {3, 4} <= set(group):
            return RowFault("21000", "21000 a second time")
        landed.extend(group)
        return None

    assert asyncio.run(land(range(10), attempt)) == []
    assert landed == list(range(10))
