"""Changing and deleting rows of events, by the places that name them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import asyncpg

from heartbeat_stream.core.cleaning import Place, Remarked
from heartbeat_stream.sinks.event_groups import delete_copies_sql, remark_sql
from heartbeat_stream.sinks.table import Table

__all__ = ["change_remarks", "delete_copies"]


async def change_remarks(
    connection: asyncpg.Connection, table: Table, changes: Sequence[Remarked]
) -> int:
    """How many remarks were changed: not those that somebody else has changed meanwhile.

    Raises what the connection raises.
    """
    if not changes:
        return 0
    return _rows(
        await connection.execute(
            remark_sql(table),
            *_columns([one.place for one in changes]),
            [one.before for one in changes],
            [one.after for one in changes],
        )
    )


async def delete_copies(
    connection: asyncpg.Connection, table: Table, places: Sequence[Place]
) -> int:
    """How many rows were deleted: not those that were gone. Raises what the connection raises."""
    if not places:
        return 0
    return _rows(await connection.execute(delete_copies_sql(table), *_columns(places)))


def _columns(places: Sequence[Place]) -> list[Any]:
    """Topics, partitions, offsets and times, and the earliest and the latest of these."""
    times = [place.received_at for place in places]
    return [*map(list, zip(*places, strict=True)), min(times), max(times)]


def _rows(status: str) -> int:
    return int(status.rpartition(" ")[2])  # "UPDATE 4711"
