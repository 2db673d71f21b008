"""The sink of tracking events on a real PostgreSQL: several writers at once, and days."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator

import asyncpg
import pytest

from heartbeat_stream.local.stack import EmbeddedStack
from heartbeat_stream.sinks.event_inspection import create_event_table
from heartbeat_stream.sinks.event_partitions import day_of, next_days
from heartbeat_stream.sinks.event_sink import EventRow, EventSink
from heartbeat_stream.sinks.event_table import partition_of
from heartbeat_stream.sinks.postgres_settings import PostgresSettings
from heartbeat_stream.sinks.table import Table

DAY_MS = 86_400_000
NOW = 20_000 * DAY_MS + 123
WRITERS = 8


class EventTable:
    """A table without partitions, and sinks that write to it."""

    def __init__(self, url: str, connection: asyncpg.Connection) -> None:
        self._settings = PostgresSettings(url)
        self.table = Table.parse(f"event_{uuid.uuid4().hex[:12]}")
        self.connection = connection
        self.sinks: list[EventSink] = []

    def sink(self) -> EventSink:
        self.sinks.append(EventSink(self._settings, self.table, lambda: NOW))
        return self.sinks[-1]

    async def count(self) -> int:
        return int(await self.connection.fetchval(f"SELECT count(*) FROM {self.table.quoted}"))

    async def partitions(self) -> list[str]:
        query = "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = to_regclass($1)"
        return sorted(row[0] for row in await self.connection.fetch(query, self.table.name))


@pytest.fixture
async def events(stack: EmbeddedStack) -> AsyncIterator[EventTable]:
    connection = await asyncpg.connect(stack.postgres.url)
    table = EventTable(stack.postgres.url, connection)
    await create_event_table(connection, table.table, [])
    yield table
    for sink in table.sinks:
        await sink.stop(1.0)
    await connection.close()


def row(writer: int, day: int, **changed: object) -> EventRow:
    one = EventRow(
        project="shop",
        distinct_id="user",
        lib="js",
        event="view",
        type="track",
        track_id="1",
        time=NOW,
        flush_time=None,
        received_at=NOW - day * DAY_MS,
        remark=None,
        document='{"a": 1}',
        topic="tracking",
        partition=writer,
        offset=day,
    )
    return one._replace(**changed)  # type: ignore[arg-type]


async def test_workers_that_need_new_days_at_once_all_get_them(events: EventTable) -> None:
    days = range(12)
    faults = await asyncio.gather(
        *(
            events.sink().store([row(writer, day) for day in days[:: 1 - 2 * (writer % 2)]])
            for writer in range(WRITERS)
        )
    )
    assert faults == [[]] * WRITERS
    assert await events.count() == WRITERS * len(days)
    wanted = {*(day_of(NOW - day * DAY_MS) for day in days), *next_days(NOW)}
    names = sorted(partition_of(events.table, day).name for day in wanted)
    assert await events.partitions() == names


async def test_a_row_that_comes_again_stays_as_it_is(events: EventTable) -> None:
    sink = events.sink()
    assert await sink.store([row(0, 1), row(0, 1, partition=2)]) == []
    again = [row(0, 1, remark="du-"), row(0, 1, partition=2), row(0, 1, offset=7)]
    assert await sink.store(again) == []
    assert await events.count() == 3
    query = f"SELECT count(*) FROM {events.table.quoted} WHERE remark IS NOT NULL"
    assert await events.connection.fetchval(query) == 0


async def test_a_poison_row_takes_no_other_along(events: EventTable) -> None:
    rows = [row(0, 1, offset=offset) for offset in range(100)]
    rows[37] = row(0, 1, offset=37, document='{"text": "\\u0000"}')
    ((index, fault),) = await events.sink().store(rows)
    assert (index, fault.sqlstate) == (37, "22P05")
    assert await events.count() == 99


async def test_a_day_that_somebody_has_removed_is_made_again(events: EventTable) -> None:
    sink = events.sink()
    assert await sink.store([row(0, 3), row(0, 4)]) == []
    gone = partition_of(events.table, day_of(NOW - 3 * DAY_MS))
    await events.connection.execute(f"DROP TABLE {gone.quoted}")
    assert await sink.store([row(1, 3), row(1, 4)]) == []
    assert await events.count() == 3
