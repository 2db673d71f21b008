"""The sink of tracking events: rows in batches, into partitions that it creates where needed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from heartbeat_stream.core.tracking import TrackingEvent
from heartbeat_stream.sinks.event_partitions import EventPartitions, day_of, next_days
from heartbeat_stream.sinks.event_table import event_sql
from heartbeat_stream.sinks.json_statement import JsonStatement
from heartbeat_stream.sinks.postgres_errors import PREPARING, RowFault, SinkUnavailable, classify
from heartbeat_stream.sinks.postgres_settings import PATIENCE_MS, PostgresSettings
from heartbeat_stream.sinks.table import Table

__all__ = ["EventRow", "EventSink"]

#: What the database says of a row that belongs in no partition, among other things.
_CHECK_VIOLATION = "23514"


class EventRow(NamedTuple):
    """A row, in the order of the statement's columns. Times are milliseconds."""

    project: str
    distinct_id: str
    lib: str
    event: str
    type: str
    track_id: str | None
    time: int | None
    flush_time: int | None
    received_at: int
    remark: str | None
    document: str
    topic: str
    partition: int
    offset: int

    @classmethod
    def of(
        cls,
        event: TrackingEvent,
        document: str,
        received_at: int,
        remark: str | None,
        place: tuple[str, int, int],
    ) -> EventRow:
        """The row of an event. ``place``: topic, partition and offset of its record."""
        return cls(
            event.project,
            event.distinct_id,
            event.lib,
            event.event,
            event.type,
            event.track_id,
            event.time_ms,
            event.flush_time_ms,
            received_at,
            remark,
            document,
            *place,
        )


class EventSink(JsonStatement):
    """Stores events. A row that is sent again changes nothing."""

    def __init__(self, settings: PostgresSettings, table: Table, now_ms: Callable[[], int]) -> None:
        super().__init__(settings, event_sql(table))
        self._now_ms = now_ms
        self._partitions = EventPartitions(table)
        self._patience_s = (settings.statement_timeout_ms + PATIENCE_MS) / 1000

    async def store(self, rows: Sequence[EventRow]) -> list[tuple[int, RowFault]]:
        """Land all rows but those answered, each with what the database has against it.

        Raises SinkUnavailable where that is not so for reasons that are no row's.
        """
        await self._have_partitions(rows)
        faults = await self.land(rows)
        if any(fault.sqlstate == _CHECK_VIOLATION for _, fault in faults):
            # Somebody may have removed a partition that was there: that is no fault of a row.
            self._partitions.forget()
            await self._have_partitions(rows)
            faults = await self.land(rows)
        return faults

    async def _have_partitions(self, rows: Sequence[EventRow]) -> None:
        days = {day_of(row.received_at) for row in rows}
        async with self._connections.use() as connection:
            try:
                async with asyncio.timeout(self._patience_s):
                    await self._partitions.ensure(connection, [*days, *next_days(self._now_ms())])
            except Exception as error:
                fault = classify(error, PREPARING)
                if isinstance(fault, SinkUnavailable):
                    raise fault from error
                raise
