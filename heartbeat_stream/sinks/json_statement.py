"""One statement with many rows as its one parameter, a JSON array: written all, or row by row."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import asyncpg
import msgspec

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

__all__ = ["JsonStatement"]

#: The values of the statement's columns, in its order.
Record = Sequence[Any]


class JsonStatement:
    """Runs one INSERT again and again. For one event loop; several runs may be under way at once.

    The counters only grow: ``statements`` sent, ``rows_written``, ``rows_turned_away`` (the
    statement's guard let them change nothing) and ``rows_refused``.
    """

    def __init__(self, settings: PostgresSettings, sql: str) -> None:
        self._settings = settings
        self._sql = sql
        self._connections = Connections(settings)
        self.statements = 0
        self.rows_written = 0
        self.rows_turned_away = 0
        self.rows_refused = 0

    async def stop(self, timeout: float) -> None:
        """Wait at most ``timeout`` seconds for writes in flight, then cut them. Never raises."""
        await self._connections.stop(timeout)

    async def land(self, records: Sequence[Record]) -> list[tuple[int, RowFault]]:
        """Land all rows but those answered, each with what the database has against it.

        Raises SinkUnavailable where that is not so for reasons that are no row's.
        """
        async with self._connections.use() as connection:

            async def attempt(group: Sequence[Record]) -> RowFault | None:
                return await self._write(connection, group)

            faults = await land(records, attempt)
        self.rows_refused += len(faults)
        return faults

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
