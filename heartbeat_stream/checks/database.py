"""Does the database answer, and can a worker write its table?"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable

import asyncpg

from heartbeat_stream.checks.finding import Finding, fail, ok
from heartbeat_stream.database import postgres_settings
from heartbeat_stream.settings import Settings, redact_url
from heartbeat_stream.sinks.connections import Connections
from heartbeat_stream.sinks.event_inspection import inspect_event_table
from heartbeat_stream.sinks.event_partitions import next_days
from heartbeat_stream.sinks.postgres_errors import SinkUnavailable
from heartbeat_stream.sinks.table import Table
from heartbeat_stream.sinks.table_inspection import (
    inspect_message_table,
    inspect_table,
    inspect_text_table,
)

InspectTable = Callable[[asyncpg.Connection, Table], Awaitable[str | None]]


async def check_database(settings: Settings) -> AsyncIterator[Finding]:
    """The connection, and the tables of the jobs that have one."""
    if "heartbeats" in settings.jobs:
        async for finding in _check_rooms(settings):
            yield finding
    if "market" in settings.jobs and settings.market_table is not None:
        table = Table.parse(settings.market_table)
        yield await _check_messages(settings, table, inspect_message_table)
    if "messages" in settings.jobs and settings.messages_sink == "table":
        table = Table.parse(settings.messages_table)
        yield await _check_messages(settings, table, inspect_text_table)
    if "tracking" in settings.jobs:
        yield await _check_events(settings, Table.parse(settings.tracking_table))


async def _check_messages(settings: Settings, table: Table, inspect: InspectTable) -> Finding:
    return await _check_appending(
        settings,
        lambda connection: inspect(connection, table),
        f"table {table}: takes messages",
    )


async def _check_events(settings: Settings, table: Table) -> Finding:
    days = next_days(time.time_ns() // 1_000_000)
    return await _check_appending(
        settings,
        lambda connection: inspect_event_table(connection, table, days),
        f"table {table}: takes events",
    )


async def _check_appending(
    settings: Settings,
    inspect: Callable[[asyncpg.Connection], Awaitable[str | None]],
    right: str,
) -> Finding:
    connections = Connections(postgres_settings(settings, pool_size=1))
    try:
        async with connections.use() as connection:
            problem = await inspect(connection)
    except (SinkUnavailable, asyncpg.PostgresError, OSError) as error:
        return fail(f"{unreachable(settings)} ({error})")
    finally:
        await connections.stop(timeout=1.0)
    return ok(right) if problem is None else fail(problem)


async def _check_rooms(settings: Settings) -> AsyncIterator[Finding]:
    table = Table.parse(settings.table)
    connections = Connections(postgres_settings(settings, pool_size=1))
    try:
        async with connections.use() as connection:
            version = connection.get_server_version()
            problems = await inspect_table(connection, table)
    except (SinkUnavailable, asyncpg.PostgresError, OSError) as error:
        yield fail(f"{unreachable(settings)} ({error})")
        return
    finally:
        await connections.stop(timeout=1.0)
    yield ok(f"PostgreSQL {version.major} at {redact_url(settings.database_url)}")
    for problem in problems:
        yield fail(problem.message)
    if not problems:
        yield ok(f"table {table}: columns, primary key and permissions are right")


def unavailable(settings: Settings, error: SinkUnavailable) -> str:
    """What to say, and to do, where a statement has failed for reasons that are no row's."""
    if error.sqlstate is None or error.kind == "authentication" or not error.operator:
        return f"{unreachable(settings)} ({error})"
    if error.kind == "permission":
        return f"the database does not allow it ({error}): see the GRANTs in docs/security.md"
    return f"the database cannot do it ({error}): see what `heartbeat-stream check` says"


def unreachable(settings: Settings) -> str:
    """What to say, and to do, where the database doesn't let us in."""
    return (
        f"no connection to {redact_url(settings.database_url)}: start the database, or set "
        "HEARTBEAT_DATABASE_URL"
    )
