"""`replay rows`: what the tables know as the newest of each room, into the database once more."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from itertools import islice

from heartbeat_stream.core.heartbeat import Heartbeat
from heartbeat_stream.database import postgres_settings
from heartbeat_stream.jobs.heartbeat_tables import LATEST, read_stored
from heartbeat_stream.recovery.errors import RecoveryError
from heartbeat_stream.recovery.operation import Progress
from heartbeat_stream.recovery.tables import read_tables
from heartbeat_stream.recovery.target import refuse_wrong_table
from heartbeat_stream.recovery.words import number_of, were
from heartbeat_stream.settings import Settings
from heartbeat_stream.sinks.postgres import PostgresSink, Refused, SinkUnavailable, Table
from heartbeat_stream.streaming.store import PartitionStore

__all__ = ["Pace", "RowReplay", "upsert_patiently"]

_BATCH = 1000
_PATIENCE_S = 60.0
_PAUSE_S = 0.5


class Pace:
    """So many rows a second at most, on average from the start on."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._free_at = time.monotonic()

    async def wait(self, rows: int) -> None:
        """Return when so many more may go."""
        now = time.monotonic()
        self._free_at = max(self._free_at, now)
        pause = self._free_at - now
        self._free_at += rows / self._rate
        if pause > 0:
            await asyncio.sleep(pause)


async def upsert_patiently(
    sink: PostgresSink, rows: Sequence[Heartbeat], patience_s: float = _PATIENCE_S
) -> list[Refused]:
    """Upsert, and try again while the database is away.

    Raises SinkUnavailable after a minute, and at once where waiting does not help.
    """
    give_up_at = time.monotonic() + patience_s
    while True:
        try:
            return await sink.upsert(rows)
        except SinkUnavailable as error:
            if error.operator or time.monotonic() >= give_up_at:
                raise
        await asyncio.sleep(_PAUSE_S)


class RowReplay:
    """`replay rows`. See :class:`heartbeat_stream.recovery.operation.Operation`.

    Workers may run meanwhile: the upsert's guard turns away what is older than a row.
    """

    def __init__(self, settings: Settings, rate: float) -> None:
        self._settings = settings
        self._rate = rate
        self._rooms = 0

    async def plan(self, progress: Progress) -> Sequence[str]:
        table = await self._look_at_the_table()
        async for partition in read_tables(self._settings, progress, tables=[LATEST]):
            self._rooms += sum(1 for _ in partition.stores[LATEST].scan())
        seconds = self._rooms / self._rate
        return [
            f"the newest heartbeats of {number_of(self._rooms, 'room')} go to the table "
            f"{self._settings.table}, {self._rate:g} a second, {seconds:,.0f} s in all",
            "a row that is as new or newer stays as it is",
            table,
        ]

    async def _look_at_the_table(self) -> str:
        """Raises RecoveryError where it takes no rows."""
        try:
            await refuse_wrong_table(self._settings)
        except SinkUnavailable as error:
            if error.operator:
                raise
            return f"the database does not answer now ({error}): it is waited for, for a minute"
        return f"the table {self._settings.table} is there, and its columns and permissions right"

    async def run(self, progress: Progress) -> Sequence[str]:
        settings = self._settings
        sink = PostgresSink(postgres_settings(settings, pool_size=1), Table.parse(settings.table))
        pace, sent, refused, example = Pace(self._rate), 0, 0, ""
        most = max(1, min(_BATCH, settings.buffer_size_max, int(self._rate)))
        try:
            async for partition in read_tables(settings, progress, tables=[LATEST]):
                heartbeats = _newest(partition.stores[LATEST])
                while rows := list(islice(heartbeats, most)):
                    await pace.wait(len(rows))
                    for one in await upsert_patiently(sink, rows):
                        refused += 1
                        example = example or _shown(rows[one.index], one)
                    sent += len(rows)
                    progress(f"{sent:,} of {self._rooms:,} rooms")
        finally:
            await sink.stop(1.0)
        if refused:
            raise RecoveryError(
                f"{were(sink.rows_written, 'row')} written, but the database refuses "
                f"{refused:,}, as {example}"
            )
        return [
            f"{were(sink.rows_written, 'row')} written, {were(sink.rows_turned_away)} as new "
            "or newer already"
        ]


def _newest(store: PartitionStore) -> Iterator[Heartbeat]:
    for _, raw in store.scan():
        room = read_stored(raw)
        yield Heartbeat(room.hotel_id, room.room_id, room.ts_ms, room.device_id, room.status)


def _shown(row: Heartbeat, refused: Refused) -> str:
    return f"hotel {row.hotel_id}, room {row.room_id} ({refused.detail})"
