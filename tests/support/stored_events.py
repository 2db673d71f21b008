"""A table of tracking events on a real database, filled by the sink as the job fills it."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import asyncpg

from heartbeat_stream.core.tracking import read_event
from heartbeat_stream.database import postgres_settings
from heartbeat_stream.settings import Settings
from heartbeat_stream.sinks.event_inspection import create_event_table
from heartbeat_stream.sinks.event_sink import EventRow, EventSink
from heartbeat_stream.sinks.table import Table

__all__ = ["Place", "StoredEvents", "row"]

#: Partition and offset: each project has a topic of its own.
Place = tuple[int, int]


def row(
    document: bytes, project: str, at_ms: int, place: Place, remark: str | None = None
) -> EventRow:
    """What the job stores of an event that it received then, from this place, with this remark."""
    event = read_event(document, project)
    return EventRow.of(event, document.decode(), at_ms, remark, (f"of {project}", *place))


class StoredEvents:
    """A table of its own. ``environment`` has commands work on it."""

    def __init__(self, url: str) -> None:
        self.environment = {
            "HEARTBEAT_DATABASE_URL": url,
            "HEARTBEAT_TRACKING_TABLE": f"e{uuid.uuid4().hex[:12]}",
        }

    @property
    def settings(self) -> Settings:
        return Settings.load(self.environment)

    @property
    def table(self) -> Table:
        return Table.parse(self.settings.tracking_table)

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[asyncpg.Connection]:
        size = 0 if self.settings.database_pooler else 100
        connection = await asyncpg.connect(self.settings.database_url, statement_cache_size=size)
        try:
            yield connection
        finally:
            connection.terminate()

    async def create(self) -> None:
        async with self.connect() as connection:
            await create_event_table(connection, self.table, [])

    async def store(self, rows: Sequence[EventRow]) -> None:
        """Have all these in the table, in partitions that are made for them."""
        newest = max(one.received_at for one in rows)
        sink = EventSink(postgres_settings(self.settings), self.table, lambda: newest)
        try:
            assert await sink.store(rows) == []
        finally:
            await sink.stop(1.0)

    async def remarks(self, project: str) -> dict[Place, str | None]:
        """Of all rows that are there."""
        query = f'SELECT partition, "offset", remark FROM {self.table.quoted} WHERE project = $1'
        async with self.connect() as connection:
            rows = await connection.fetch(query, project)
        return {(found["partition"], found["offset"]): found["remark"] for found in rows}
