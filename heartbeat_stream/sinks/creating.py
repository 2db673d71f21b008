"""One creator at a time: IF NOT EXISTS does not hold against somebody at the same moment."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

__all__ = ["creating"]

_ALONE = "SELECT pg_advisory_xact_lock(hashtextextended('heartbeat-stream creates', 0))"


@asynccontextmanager
async def creating(connection: asyncpg.Connection) -> AsyncIterator[None]:
    """A transaction in which no other worker, collector or `init` creates in this database.

    Waits for those who do, and then sees what they made. Without it two sessions that create one
    thing at the same time both miss it, and the later one gets one of several errors (42710,
    23505, XX000), by how far the other is. Raises what the connection raises.
    """
    async with connection.transaction(isolation="read_committed"):
        await connection.execute(_ALONE)
        yield
