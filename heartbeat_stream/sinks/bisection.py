"""Find the few rows that the database refuses, and let all others land."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from heartbeat_stream.sinks.postgres_errors import RowFault

Row = TypeVar("Row")


async def land(
    rows: Sequence[Row], attempt: Callable[[Sequence[Row]], Awaitable[RowFault | None]]
) -> list[tuple[int, RowFault]]:
    """Land ``rows`` in their order; return the index of each guilty one with what is against it.

    ``attempt`` writes a group of neighbouring rows as a whole: it returns None once they have
    landed, or a fault, and then none of the group has. What it raises (the database went away)
    rises from here; groups that have landed by then stay landed. The caller then sends the whole
    batch again, which does no harm: the upsert's guard turns away a row that is already there.

    The whole batch is the first attempt, so a good one costs one. After a failure the group is
    halved until it lands or is one row; after a success it doubles, unless a failure has shown
    that a guilty row is near. One guilty row among n costs about 2 log2 n attempts, and if all
    are guilty each costs one: halving both ways, as in a tree, would cost two.
    """
    guilty: list[tuple[int, RowFault]] = []
    start, size = 0, len(rows)
    suspects = 0  # so many rows from start on are known to hold a guilty one
    while start < len(rows):
        group = rows[start : start + size]
        fault = await attempt(group)
        if fault is None:
            start += len(group)
            suspects = max(0, suspects - len(group))
            size = max(1, suspects // 2) if suspects else size * 2
        elif len(group) == 1:
            guilty.append((start, fault))
            start += 1
            suspects = 0
        else:
            suspects = len(group)
            size = len(group) // 2
    return guilty
