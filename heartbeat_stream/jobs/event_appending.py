"""Storing events, tried until they are there."""

from collections.abc import Sequence

from heartbeat_stream.core.reasons import Rejected
from heartbeat_stream.jobs.appending import Refuse, RowAppender
from heartbeat_stream.sinks.event_sink import EventRow, EventSink
from heartbeat_stream.sinks.postgres_errors import RowFault
from heartbeat_stream.streaming.forwarding import Arrival

__all__ = ["EventAppender", "Placed"]

#: A row, and the record that becomes a dead letter where the database refuses it.
Placed = tuple[Arrival, EventRow]


class EventAppender(RowAppender[Placed]):
    """Events on their way into their table."""

    def __init__(self, sink: EventSink, refuse: Refuse) -> None:
        super().__init__(sink)
        self._sink = sink
        self._refuse = refuse

    async def write(self, batch: Sequence[Placed]) -> list[tuple[int, RowFault]]:
        return await self._sink.store([row for _, row in batch])

    async def refuse(self, item: Placed, why: Rejected) -> None:
        await self._refuse(item[0], why)
