"""Create the table of tracking events, or say what is wrong with it, for `init` and `check`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

import asyncpg

from heartbeat_stream.sinks.event_partitions import create_partitions
from heartbeat_stream.sinks.event_table import event_ddl, event_sql, partition_of
from heartbeat_stream.sinks.table import Table
from heartbeat_stream.sinks.table_inspection import create_table

__all__ = ["create_event_table", "inspect_event_table"]

_FOUND = """\
SELECT relkind = 'p' AS partitioned, pg_catalog.pg_has_role(relowner, 'USAGE') AS owned
FROM pg_catalog.pg_class WHERE oid = pg_catalog.to_regclass($1)"""


async def create_event_table(
    connection: asyncpg.Connection, table: Table, days: Sequence[date]
) -> bool:
    """Create what is missing of the table and its partitions; tell whether anything was.

    Safe to repeat and to run twice at once. Raises asyncpg.PostgresError.
    """
    created = await create_table(connection, table, event_ddl)
    if await _is_partitioned(connection, table):
        created |= bool(await create_partitions(connection, table, days))
    return created


async def _is_partitioned(connection: asyncpg.Connection, table: Table) -> bool:
    return bool(await connection.fetchval(f"SELECT partitioned FROM ({_FOUND}) f", table.quoted))


async def inspect_event_table(
    connection: asyncpg.Connection, table: Table, days: Sequence[date]
) -> str | None:
    """What keeps a worker from storing events of these days; None if nothing does.

    Raises what the connection raises.
    """
    found = await connection.fetchrow(_FOUND, table.quoted)
    if found is not None and not found["partitioned"]:
        return f"{table} is not partitioned by the day: set HEARTBEAT_TRACKING_TABLE to another one"
    try:
        await connection.execute("BEGIN; SET TRANSACTION READ WRITE")
        await connection.execute(event_sql(table).replace("$1", "'[]'"))
    except asyncpg.PostgresError as error:
        return (
            f"table {table} takes no events ({error}): create it with `heartbeat-stream init`, or "
            "set HEARTBEAT_TRACKING_TABLE"
        )
    finally:
        await connection.execute("ROLLBACK")
    if found is None or found["owned"]:
        return None
    missing = [partition_of(table, day) for day in days]
    missing = [one for one in missing if not await _exists(connection, one)]
    if missing:
        return (
            f"partition {missing[0]} of {table} is missing, and only the table's owner may create "
            "it: run `heartbeat-stream init` as the owner each day, or make this user the owner"
        )
    return None


async def _exists(connection: asyncpg.Connection, table: Table) -> bool:
    return bool(
        await connection.fetchval("SELECT pg_catalog.to_regclass($1) IS NOT NULL", table.quoted)
    )
