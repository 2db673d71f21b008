"""Seen events in a table of PostgreSQL, each with its expiry, by the clock of the database."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import asyncpg

from heartbeat_stream.collector.seen.store import Answer, StoreFailed
from heartbeat_stream.sinks.connections import Connections
from heartbeat_stream.sinks.creating import creating
from heartbeat_stream.sinks.postgres_errors import SinkUnavailable
from heartbeat_stream.sinks.postgres_settings import PostgresSettings
from heartbeat_stream.sinks.table import Table, quote

__all__ = ["ROW_BYTES", "PostgresStore"]

#: What a row takes on the disk, with its two indexes, until vacuum gives room back.
ROW_BYTES: Final = 250
_CLEANED_AT_ONCE: Final = 1_000
_STOP_S: Final = 1.0

# Not logged: after a crash of the database the table is empty. Copies are then missed, and no
# event is taken for seen that was not.
_CREATE: Final = """
CREATE UNLOGGED TABLE IF NOT EXISTS {table} (
  key BYTEA PRIMARY KEY,
  owner BYTEA,
  expires_at TIMESTAMPTZ NOT NULL
)
"""
_CREATE_INDEX: Final = "CREATE INDEX IF NOT EXISTS {index} ON {table} (expires_at)"
# Keys in order, so that two batches cannot wait for each other.
_CLAIM: Final = """
INSERT INTO {table} AS held (key, owner, expires_at)
SELECT key, owner, clock_timestamp() + $3 * interval '1 ms'
FROM unnest($1::bytea[], $2::bytea[]) AS asked (key, owner) ORDER BY key
ON CONFLICT (key) DO UPDATE SET owner = excluded.owner, expires_at = excluded.expires_at
WHERE held.expires_at <= clock_timestamp()
RETURNING key
"""
_SEEN: Final = """
SELECT key FROM {table}
WHERE key = ANY($1::bytea[]) AND owner IS NULL AND expires_at > clock_timestamp()
"""
_CONFIRM: Final = """
INSERT INTO {table} (key, owner, expires_at)
SELECT key, NULL, clock_timestamp() + $2 * interval '1 ms'
FROM unnest($1::bytea[]) AS asked (key) ORDER BY key
ON CONFLICT (key) DO UPDATE SET owner = NULL, expires_at = excluded.expires_at
"""
_RELEASE: Final = "DELETE FROM {table} WHERE key = ANY($1::bytea[]) AND owner = $2"
_EXPIRE: Final = """
DELETE FROM {table} WHERE key IN (
  SELECT key FROM {table} WHERE expires_at <= clock_timestamp()
  ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED)
"""
_SHRINK: Final = """
DELETE FROM {table} WHERE key IN (
  SELECT key FROM {table} ORDER BY expires_at
  LIMIT LEAST($1, GREATEST(0, (SELECT count(*) FROM {table}) - $2)) FOR UPDATE SKIP LOCKED)
"""


class PostgresStore:
    """A table that any number of collectors share. Each cleans it."""

    def __init__(
        self,
        settings: PostgresSettings,
        table: str,
        *,
        claim_ms: int,
        window_ms: int,
        most: int,
    ) -> None:
        self._connections = Connections(settings)
        self._table = Table.parse(table)
        self._claim_ms = claim_ms
        self._window_ms = window_ms
        self._most = most
        self._created = False

    async def start(self) -> None:
        async with self._connection():
            pass

    async def claim(self, wanted: Mapping[bytes, bytes]) -> list[Answer]:
        keys, owners = list(wanted), list(wanted.values())
        async with self._connection() as connection:
            mine = await connection.fetch(self._sql(_CLAIM), keys, owners, self._claim_ms)
            claimed = {row["key"] for row in mine}
            others = [key for key in keys if key not in claimed]
            found = await connection.fetch(self._sql(_SEEN), others) if others else []
        seen = {row["key"] for row in found}
        return [
            Answer.CLAIMED if key in claimed else Answer.SEEN if key in seen else Answer.PENDING
            for key in keys
        ]

    async def confirm(self, keys: Sequence[bytes]) -> None:
        async with self._connection() as connection:
            await connection.execute(self._sql(_CONFIRM), keys, self._window_ms)

    async def release(self, keys: Sequence[bytes], owner: bytes) -> None:
        async with self._connection() as connection:
            await connection.execute(self._sql(_RELEASE), keys, owner)

    async def clean(self) -> int:
        async with self._connection() as connection:
            gone = _count(await connection.execute(self._sql(_EXPIRE), _CLEANED_AT_ONCE))
            if gone < _CLEANED_AT_ONCE:
                more = await connection.execute(self._sql(_SHRINK), _CLEANED_AT_ONCE, self._most)
                gone += _count(more)
        return gone

    async def stop(self) -> None:
        await self._connections.stop(_STOP_S)

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        """A connection to a database that has the table."""
        try:
            async with self._connections.use() as connection:
                if not self._created:
                    await self._create(connection)
                    self._created = True
                yield connection
        except (SinkUnavailable, OSError, TimeoutError) as error:
            raise StoreFailed(f"PostgreSQL: {error}") from error
        except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            self._created = False
            raise StoreFailed(f"PostgreSQL: {type(error).__name__}: {error}") from error

    async def _create(self, connection: Any) -> None:
        async with creating(connection):
            await connection.execute(self._sql(_CREATE))
            await connection.execute(self._sql(_CREATE_INDEX))

    def _sql(self, template: str) -> str:
        name = self._table.name + "_expires_at"
        return template.format(table=self._table.quoted, index=quote(name))


def _count(status: str) -> int:
    """Of "DELETE 7"."""
    return int(status.split()[-1])
