"""The PostgreSQL sink: the newest heartbeats of rooms, upserted a batch per statement."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import asyncpg
import msgspec

from heartbeat_stream.core.heartbeat import Heartbeat
from heartbeat_stream.core.reasons import Reason
from heartbeat_stream.sinks.bisection import land
from heartbeat_stream.sinks.connections import Connections
from heartbeat_stream.sinks.postgres_errors import (
    PREPARING,
    WRITING,
    RowFault,
    SinkUnavailable,
    classify,
)
from heartbeat_stream.sinks.postgres_settings import PATIENCE_MS, PostgresSettings
from heartbeat_stream.sinks.table import Table, upsert_sql

__all__ = ["PostgresSettings", "PostgresSink", "Refused", "SinkUnavailable", "Table"]

Record = tuple[int, str, str | None, int, int | None]  # the columns in the table's order


@dataclass(frozen=True, slots=True)
class Refused:
    """A row that the database will not take, whoever sends it and whenever."""

    index: int  # in the sequence that was given to upsert()
    reason: Reason  # ROW_REFUSED
    detail: str  # SQLSTATE and the server's message, one line, without the row's values


class PostgresSink:
    """Writes heartbeats into one table. For one event loop; several upserts may run at once.

    The counters only grow: ``statements`` sent, ``rows_written`` (inserted or updated),
    ``rows_turned_away`` (the table already had them, or newer ones) and ``rows_refused``.
    """

    def __init__(self, settings: PostgresSettings, table: Table) -> None:
        self._settings = settings
        self._sql = upsert_sql(table)
        self._connections = Connections(settings)
        self.statements = 0
        self.rows_written = 0
        self.rows_turned_away = 0
        self.rows_refused = 0

    async def start(self) -> None:
        """Return at once: connections are opened when first needed, the database may be away."""

    async def stop(self, timeout: float) -> None:
        """Wait at most ``timeout`` seconds for writes in flight, then cut them. Never raises."""
        await self._connections.stop(timeout)

    async def upsert(self, rows: Sequence[Heartbeat]) -> list[Refused]:
        """Land all rows, and return those that the database refuses for what they are.

        Every other row is acknowledged when this returns: it is in the table, or the table has
        one of the same room that is not older. Of a room there should be one row (two cost more
        statements), and concurrent calls should have no room in common (they would wait for each
        other).

        Raises SinkUnavailable if that is not so for reasons that are no row's; some of the rows
        may have landed then. It is the caller who tries again, with what is newest at that time;
        a row that is sent again harms nothing. It takes at most the connect timeout and, for each
        statement (one, unless rows are refused), the statement timeout and PATIENCE_MS, after
        having waited for a connection where more calls run than there are connections. 5,000 rows
        hold up the event loop for about 5 ms.

        If it is cancelled, the statement may land still.
        """
        if not rows:
            return []
        records: list[Record] = [
            (row.hotel_id, row.room_id, row.device_id, row.ts_ms, row.status) for row in rows
        ]
        async with self._connections.use() as connection:

            async def attempt(group: Sequence[Record]) -> RowFault | None:
                return await self._write(connection, group)

            faults = await land(records, attempt)
        self.rows_refused += len(faults)
        return [Refused(index, Reason.ROW_REFUSED, fault.detail) for index, fault in faults]

    async def _write(
        self, connection: asyncpg.Connection, rows: Sequence[Record]
    ) -> RowFault | None:
        """Write one group in one transaction, all or nothing."""
        try:
            encoded = msgspec.json.encode(rows).decode()
        except ValueError as error:  # a lone surrogate, which the core does not let through
            return RowFault("22021", f"22021 cannot be encoded: {type(error).__name__}")
        during = PREPARING
        try:
            async with asyncio.timeout((self._settings.statement_timeout_ms + PATIENCE_MS) / 1000):
                if self._settings.pooler:
                    limit = self._settings.statement_timeout_ms
                    await connection.execute(f"BEGIN; SET LOCAL statement_timeout = {limit}")
                during = WRITING
                self.statements += 1
                status = await connection.execute(self._sql, encoded)
                if self._settings.pooler:
                    await connection.execute("COMMIT")
        except Exception as error:
            fault = classify(error, during)
            if fault is None:
                raise
            if isinstance(fault, SinkUnavailable):
                raise fault from error
            if self._settings.pooler:
                await self._rollback(connection)
            return fault
        written = int(status.rpartition(" ")[2])  # "INSERT 0 4711"
        self.rows_written += written
        self.rows_turned_away += len(rows) - written
        return None

    async def _rollback(self, connection: asyncpg.Connection) -> None:
        try:
            async with asyncio.timeout(PATIENCE_MS / 1000):
                await connection.execute("ROLLBACK")
        except Exception as error:
            fault = classify(error, PREPARING)
            if isinstance(fault, SinkUnavailable):
                raise fault from error
            raise
