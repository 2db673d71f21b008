"""The sink's own settings, made from those of the process."""

from __future__ import annotations

from heartbeat_stream.settings import Settings
from heartbeat_stream.sinks.postgres_settings import PostgresSettings


def postgres_settings(settings: Settings, *, pool_size: int | None = None) -> PostgresSettings:
    """How to reach the database. `pool_size` for a use that needs other than the worker's."""
    return PostgresSettings(
        url=settings.database_url,
        pool_size=pool_size or settings.database_pool_size,
        connect_timeout_ms=settings.database_connect_timeout_ms,
        statement_timeout_ms=settings.database_statement_timeout_ms,
        pooler=settings.database_pooler,
        application_name=settings.app_id,
    )
