"""The database, as recoveries reach it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from heartbeat_stream.database import postgres_settings
from heartbeat_stream.settings import Settings
from heartbeat_stream.sinks.connections import Connections
from heartbeat_stream.sinks.postgres_errors import PREPARING, SinkUnavailable, classify

__all__ = ["database_connection"]


@asynccontextmanager
async def database_connection(settings: Settings) -> AsyncIterator[asyncpg.Connection]:
    """A connection for once; what goes wrong with it is SinkUnavailable."""
    connections = Connections(postgres_settings(settings, pool_size=1))
    try:
        async with connections.use() as connection:
            yield connection
    except SinkUnavailable:
        raise
    except Exception as error:
        unavailable = classify(error, PREPARING)
        if isinstance(unavailable, SinkUnavailable):
            raise unavailable from error
        raise
    finally:
        await connections.stop(timeout=1.0)
