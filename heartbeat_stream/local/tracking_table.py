"""The table of tracking events, watched while traffic of a run is sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import asyncpg

from heartbeat_stream.core.tracking import MARK
from heartbeat_stream.database import postgres_settings
from heartbeat_stream.local.judged_traffic import Watcher
from heartbeat_stream.local.record_sender import SendError
from heartbeat_stream.local.tracking_traffic import PROJECTS
from heartbeat_stream.settings import Settings
from heartbeat_stream.sinks.connections import Connections
from heartbeat_stream.sinks.postgres_errors import SinkUnavailable
from heartbeat_stream.sinks.table import Table

__all__ = ["watching_table"]

_POLL_S = 0.5
#: The collector's clock may be somewhat behind this one's.
_EARLIER = timedelta(minutes=5)
_PAGE = 2_000

_OF_THE_RUN = """\
FROM {table} WHERE project = ANY($1) AND received_at >= $2 AND starts_with(distinct_id, $3)"""
_COUNT = "SELECT count(*) " + _OF_THE_RUN
_NEWEST = "SELECT event, distinct_id, remark " + _OF_THE_RUN + " ORDER BY received_at DESC LIMIT 1"
_ALL = (
    """\
SELECT partition, "offset", remark, (document->'properties'->>'number')::int AS number
"""
    + _OF_THE_RUN
)


class Take(Protocol):
    """Is told of each row: the event's number, where it stood in the source, whether marked."""

    def __call__(self, number: int, place: str, *, marked: bool) -> None: ...


class _TableWatcher(Watcher):
    """Counts rows meanwhile, and reads them when all are there."""

    def __init__(self, connections: Connections, table: Table, run: str, take: Take) -> None:
        super().__init__()
        self._connections = connections
        self._table = table
        since = datetime.now(UTC) - _EARLIER
        self._arguments: tuple[Any, ...] = (list(PROJECTS), since, f"{run}-")
        self._take = take

    async def run(self) -> None:
        while True:
            with suppress(SendError):  # said at the end, if it lasts
                await self.look()
            await asyncio.sleep(_POLL_S)

    async def look(self) -> None:
        """Count once. Raises SendError where the table cannot be read."""
        async with self._reading() as connection:
            count = await connection.fetchval(self._sql(_COUNT), *self._arguments)
            newest = await connection.fetchrow(self._sql(_NEWEST), *self._arguments)
        self._took(count - self.taken)
        if newest is not None:
            self.newest = " ".join(str(one) for one in newest.values() if one is not None)

    async def until_all(
        self, expected: int, seconds: float, on_progress: Callable[[], None]
    ) -> None:
        await super().until_all(expected, seconds, on_progress)
        async with self._reading() as connection, connection.transaction():
            async for row in connection.cursor(self._sql(_ALL), *self._arguments, prefetch=_PAGE):
                marked = (row["remark"] or "").startswith(MARK)
                self._take(row["number"], f"{row['partition']}-{row['offset']}", marked=marked)

    def _sql(self, statement: str) -> str:
        return statement.format(table=self._table.quoted)

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[asyncpg.Connection]:
        try:
            async with self._connections.use() as connection:
                yield connection
        except (SinkUnavailable, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            raise SendError(
                f"cannot read table {self._table} ({error}): `heartbeat-stream init --jobs "
                "tracking` creates it; or set HEARTBEAT_DATABASE_URL and HEARTBEAT_TRACKING_TABLE"
            ) from error


@asynccontextmanager
async def watching_table(settings: Settings, run: str, take: Take) -> AsyncIterator[Watcher]:
    """Watch for the events of a run. Raises SendError where the table cannot be read."""
    connections = Connections(postgres_settings(settings, pool_size=2))
    table = Table.parse(settings.tracking_table)
    task = None
    try:
        watcher = _TableWatcher(connections, table, run, take)
        await watcher.look()
        task = asyncio.create_task(watcher.run())
        yield watcher
    finally:
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
        await connections.stop(timeout=1.0)
