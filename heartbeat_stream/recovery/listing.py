"""Which rooms `state list` and `state export` show, and where these come from."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import NamedTuple

from heartbeat_stream.recovery.exporting import Record, as_record
from heartbeat_stream.recovery.tables import Progress, read_tables
from heartbeat_stream.recovery.worker_views import ask_for_rooms
from heartbeat_stream.settings import Settings

__all__ = ["Choice", "list_rooms"]


class Choice(NamedTuple):
    """``hotel``: its rooms alone. ``pending``: those whose newest heartbeat is not written yet."""

    hotel: int | None = None
    pending: bool = False

    def holds(self, room: Record) -> bool:
        if self.hotel not in (None, room["hotel_id"]):
            return False
        written = room["written_ts_ms"]
        return not self.pending or written is None or written < room["ts_ms"]


async def list_rooms(
    settings: Settings, choice: Choice, url: str | None, progress: Progress
) -> AsyncGenerator[Iterable[Record]]:
    """The rooms, some at a time; each part is to be used up before the next one is asked for.

    From the changelogs, or from the workers of ``url``. Raises RecoveryError, KafkaError and
    StoreError.
    """
    if url is None:
        async with aclosing(read_tables(settings, progress)) as partitions:
            async for partition in partitions:
                yield filter(choice.holds, map(as_record, partition.rooms()))
        return
    async with aclosing(ask_for_rooms(settings, url, choice.hotel)) as pages:
        async for page in pages:
            yield filter(choice.holds, page)
