"""The copies of events in the table, group by group, as far as a range of time touches them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

import asyncpg

from heartbeat_stream.core.cleaning import Place, StoredCopy
from heartbeat_stream.core.reasons import Rejected
from heartbeat_stream.core.tracking import judged_types, read_event
from heartbeat_stream.sinks.event_groups import copies_sql, keys_sql
from heartbeat_stream.sinks.table import Table

__all__ = ["Key", "Scope", "keys_in", "read_groups"]

#: To find the keys, the server reads all events of the range before it answers.
_FINDING_S = 86_400.0

#: ``(distinct_id, track_id, time)``, as the columns hold them.
Key = tuple[str, str, int | None]


class Scope(NamedTuple):
    """Which events are looked at. Times are when they were received, in ms; ``end_ms`` is left out.

    A key counts if an event of it was received between ``start_ms`` and ``end_ms``. Copies are
    looked for ``margin_ms`` beyond on either side.
    """

    table: Table
    project: str
    start_ms: int
    end_ms: int
    margin_ms: int
    signup: bool

    @property
    def types(self) -> tuple[str, ...]:
        return judged_types(signup=self.signup)


async def keys_in(
    connection: asyncpg.Connection, scope: Scope, batch: int
) -> AsyncIterator[Sequence[Key]]:
    """The keys that may have copies, so many at a time. To be called within a transaction, which
    holds them on the server's side.
    """
    # The first answer takes as long as reading the range does.
    await connection.execute("SET LOCAL statement_timeout = 0")
    # In SQL: a cursor of asyncpg leaves a named statement behind in the sessions of a pooler.
    await connection.execute(
        f"DECLARE keys NO SCROLL CURSOR FOR {keys_sql(scope.table)}",
        scope.project,
        scope.types,
        scope.start_ms - scope.margin_ms,
        scope.end_ms + scope.margin_ms,
        scope.start_ms,
        scope.end_ms,
    )
    while rows := await connection.fetch(f"FETCH {batch} FROM keys", timeout=_FINDING_S):
        yield [(row["distinct_id"], row["track_id"], row["time"]) for row in rows]


async def read_groups(
    connection: asyncpg.Connection, scope: Scope, keys: Sequence[Key], *, lock: bool
) -> list[list[StoredCopy]]:
    """All rows of these keys, whenever they were received, by the event that they are copies of.

    ``lock``: until the end of the transaction nobody changes or deletes one of them.
    """
    rows = await connection.fetch(
        copies_sql(scope.table, lock=lock),
        scope.project,
        scope.types,
        *map(list, zip(*keys, strict=True)),
    )
    groups: dict[bytes, list[StoredCopy]] = {}
    for row in rows:
        identity = _identity(row["document"], scope)
        if identity is not None:
            place = Place(row["topic"], row["partition"], row["offset"], row["received_at"])
            copy = StoredCopy(place, row["flush_time"], row["remark"])
            groups.setdefault(identity, []).append(copy)
    return list(groups.values())


def _identity(document: str, scope: Scope) -> bytes | None:
    try:
        event = read_event(document.encode(), scope.project)
    except Rejected:  # a row that nobody has stored here
        return None
    return event.identity(signup=scope.signup)
