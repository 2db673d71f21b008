"""A world for the job that stores tracking events: its table, what is sent, what is stored."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date, datetime
from typing import Any

import asyncpg

from heartbeat_stream.core.tracking_record import Envelope, headers_of
from heartbeat_stream.sinks.event_inspection import create_event_table
from heartbeat_stream.sinks.event_partitions import next_days
from heartbeat_stream.sinks.table import Table
from tests.support.oracle import now_ms
from tests.support.streams import prepare_jobs, source
from tests.support.world import World

__all__ = ["event", "partitions", "prepare_tracking", "report", "stored"]


def event(n: int, **changed: Any) -> bytes:
    """A report of the event with this number; ``...`` leaves a field out."""
    fields: dict[str, Any] = {
        "type": "track",
        "event": "view",
        "distinct_id": f"user-{n % 7}",
        "_track_id": 1_000 + n,
        "time": 1_700_000_000_000 + n,
        "_flush_time": 1_700_000_005_000,
        "lib": {"$lib": "js"},
        "properties": {"n": n},
        "project": "shop",
    }
    fields |= changed
    return json.dumps({name: value for name, value in fields.items() if value is not ...}).encode()


async def prepare_tracking(
    world: World, *, jobs: str = "tracking", partitioned: bool = True, **environment: object
) -> World:
    """The topics and the table, and what a collector needs; ``partitioned``: with the partitions of
    today and tomorrow."""
    world.set(
        collect_spool_dir=world.directory / "spool",
        collect_store_table=f"{world.settings.table}_seen",
    )
    await prepare_jobs(world, jobs, **environment)
    table = Table.parse(world.settings.tracking_table)
    async with world.table.connect() as connection:
        days = next_days(now_ms()) if partitioned else []
        await create_event_table(connection, table, days)
    return world


async def report(
    world: World,
    values: Sequence[bytes],
    envelope: Envelope | None = None,
    *,
    partition: int = 0,
    at_ms: int | None = None,
) -> None:
    """Have these in the topic, in order, acknowledged."""
    async with world.producer() as producer:
        for value in values:
            await producer.send(
                source(world, "tracking"),
                value,
                partition=partition,
                timestamp_ms=at_ms or now_ms(),
                headers=headers_of(envelope or Envelope()),
            )
        await producer.flush()


async def stored(world: World) -> list[asyncpg.Record]:
    """All rows, in the order in which they were sent."""
    query = f'SELECT * FROM {world.settings.tracking_table} ORDER BY "offset", partition'
    async with world.table.connect() as connection:
        return list(await connection.fetch(query))


async def partitions(world: World) -> set[date]:
    """The days for which the table has a partition."""
    query = "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = to_regclass($1)"
    async with world.table.connect() as connection:
        names = [row[0] for row in await connection.fetch(query, world.settings.tracking_table)]
    days = [datetime.strptime(name.rpartition("_p")[2], "%Y%m%d").date() for name in names]
    assert len(days) == len(set(days))
    return set(days)
