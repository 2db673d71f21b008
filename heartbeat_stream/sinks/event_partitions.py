"""The partitions of the table of events: a day's is there before its first row is written."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta

import asyncpg

from heartbeat_stream.sinks.creating import creating
from heartbeat_stream.sinks.event_table import attach_sql, partition_ddl, partition_of
from heartbeat_stream.sinks.table import Table

__all__ = ["EventPartitions", "create_partitions", "day_of", "next_days"]

_KNOWN_MAX = 10_000
_EXISTING = """\
SELECT c.relname::text FROM pg_catalog.pg_inherits AS i
JOIN pg_catalog.pg_class AS c ON c.oid = i.inhrelid
WHERE i.inhparent = pg_catalog.to_regclass($1) AND c.relname = ANY($2::text[])"""


def day_of(at_ms: int) -> date:
    """The day of a time, in UTC."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).date()


def next_days(now_ms: int) -> list[date]:
    """Those whose partitions are to be there: today's, and tomorrow's ahead of midnight."""
    today = day_of(now_ms)
    return [today, today + timedelta(1)]


async def create_partitions(
    connection: asyncpg.Connection, table: Table, days: Iterable[date]
) -> list[date]:
    """Create those that are missing, and tell which. Safe to run several times at once.

    A day that a partition of somebody else's covers counts as there. Raises what the connection
    raises: a worker may lack the right to create one, which it needs only for a missing one.
    """
    wanted = {partition_of(table, day).name: day for day in sorted(set(days))}
    created: list[date] = []
    if not await _missing(connection, table, wanted):
        return created
    async with creating(connection):
        for day in (await _missing(connection, table, wanted)).values():
            try:
                async with connection.transaction():
                    await connection.execute(partition_ddl(table, day))
                    await connection.execute(attach_sql(table, day))
            except asyncpg.InvalidObjectDefinitionError:
                continue  # it would overlap with another one
            created.append(day)
    return created


async def _missing(
    connection: asyncpg.Connection, table: Table, wanted: dict[str, date]
) -> dict[str, date]:
    rows = await connection.fetch(_EXISTING, table.quoted, list(wanted))
    existing = {row["relname"] for row in rows}
    return {name: day for name, day in wanted.items() if name not in existing}


class EventPartitions:
    """Creates them as rows need them, and asks the database once for each day."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._known: set[date] = set()

    async def ensure(self, connection: asyncpg.Connection, days: Iterable[date]) -> None:
        """Have partitions for these days. Raises what the connection raises."""
        unknown = set(days) - self._known
        if not unknown:
            return
        await create_partitions(connection, self._table, unknown)
        if len(self._known) > _KNOWN_MAX:
            self._known.clear()
        self._known |= unknown

    def forget(self) -> None:
        """Ask again: somebody may have taken one away."""
        self._known.clear()
