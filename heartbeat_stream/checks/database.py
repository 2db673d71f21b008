"""Does the database answer, and can a worker write its table?"""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg

from heartbeat_stream.checks.finding import Finding, fail, ok
from heartbeat_stream.database import postgres_settings
from heartbeat_stream.settings import Settings, redact_url
from heartbeat_stream.sinks.connections import Connections
from heartbeat_stream.sinks.postgres_errors import SinkUnavailable
from heartbeat_stream.sinks.table import Table
from heartbeat_stream.sinks.table_inspection import inspect_table


async def check_database(settings: Settings) -> AsyncIterator[Finding]:
    """The connection and the table."""
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


def unreachable(settings: Settings) -> str:
    """What to say, and to do, where the database doesn't let us in."""
    return (
        f"no connection to {redact_url(settings.database_url)}: start the database, or set "
        "HEARTBEAT_DATABASE_URL"
    )
