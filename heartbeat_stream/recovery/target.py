"""The table in the database, as recoveries see it: what is wrong with it, and single rows of it."""

from __future__ import annotations

from heartbeat_stream.recovery.database import database_connection
from heartbeat_stream.recovery.errors import RecoveryError
from heartbeat_stream.settings import Settings
from heartbeat_stream.sinks.table import Table, delete_sql, exists_sql
from heartbeat_stream.sinks.table_inspection import inspect_table

__all__ = ["delete_row", "has_row", "refuse_wrong_table"]


async def refuse_wrong_table(settings: Settings) -> None:
    """Raise RecoveryError, in the words of `check`, where rows cannot be written at all.

    Raises SinkUnavailable where there is no database.
    """
    async with database_connection(settings) as connection:
        problems = await inspect_table(connection, Table.parse(settings.table))
    if problems:
        more = len(problems) - 1
        raise RecoveryError(problems[0].message + (f" (and {more} more)" if more else ""))


async def has_row(settings: Settings, hotel: int, room: str) -> bool:
    """Whether the room has a row. Raises SinkUnavailable."""
    async with database_connection(settings) as connection:
        found: bool = await connection.fetchval(
            exists_sql(Table.parse(settings.table)), hotel, room
        )
    return found


async def delete_row(settings: Settings, hotel: int, room: str) -> bool:
    """Delete the room's row; whether there was one. Raises SinkUnavailable."""
    async with database_connection(settings) as connection:
        status = await connection.execute(delete_sql(Table.parse(settings.table)), hotel, room)
    return bool(status == "DELETE 1")
