"""`state forget` and `state get`: one room, by its hotel and its name."""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg

from heartbeat_stream.core.heartbeat import room_key
from heartbeat_stream.core.partition import partition_for
from heartbeat_stream.database import postgres_settings
from heartbeat_stream.recovery.cluster import open_producer, refuse_while_running
from heartbeat_stream.recovery.discarding import remove
from heartbeat_stream.recovery.errors import RecoveryError
from heartbeat_stream.recovery.moments import shown_time
from heartbeat_stream.recovery.operation import Progress
from heartbeat_stream.recovery.tables import RoomState, count_partitions, read_tables
from heartbeat_stream.settings import Settings
from heartbeat_stream.sinks.connections import Connections
from heartbeat_stream.sinks.table import Table, delete_sql
from heartbeat_stream.streaming.topics import TABLES

__all__ = ["Forgetting", "find_room"]

_WHY = "the one that has the room in memory would put it back"


async def find_room(settings: Settings, hotel: int, room: str, progress: Progress) -> RoomState:
    """The room as the changelogs have it. Raises RecoveryError where they do not know it."""
    key = room_key(hotel, room)
    number = partition_for(key, await count_partitions(settings))
    async for partition in read_tables(settings, progress, partitions=[number]):
        for state in partition.rooms():
            if state.key == key:
                return state
    raise RecoveryError(
        f"the tables of {settings.app_id} do not know hotel {hotel}, room {room}: a room id is "
        "taken as it is, with case and spaces"
    )


class Forgetting:
    """`state forget`. See :class:`heartbeat_stream.recovery.operation.Operation`.

    ``with_row``: the row goes, too, or its ``ts_ms`` would turn away the heartbeats that follow.
    """

    def __init__(self, settings: Settings, hotel: int, room: str, *, with_row: bool) -> None:
        self._settings = settings
        self._hotel = hotel
        self._room = room
        self._with_row = with_row

    async def plan(self, progress: Progress) -> Sequence[str]:
        settings = self._settings
        await refuse_while_running(settings, _WHY)
        state = await find_room(settings, self._hotel, self._room, progress)
        named = f"hotel {self._hotel}, room {self._room}"
        ts_ms = state.stored.ts_ms
        lines = [
            f"{named} leaves the tables: its newest heartbeat is of {shown_time(ts_ms)} ({ts_ms})"
        ]
        if state.pending:
            lines.append("that heartbeat is not in the database yet, and will not come there")
        if self._with_row:
            lines.append(f"its row in {settings.table} is deleted")
        else:
            lines.append(
                f"its row in {settings.table} stays, and takes no heartbeat that is older than it: "
                "--row deletes it, too"
            )
        return lines

    async def run(self, progress: Progress) -> Sequence[str]:
        settings = self._settings
        await refuse_while_running(settings, _WHY)
        key = room_key(self._hotel, self._room)
        number = partition_for(key, await count_partitions(settings))
        async with open_producer(settings) as producer:
            async for partition in read_tables(settings, progress, partitions=[number]):
                for table in reversed(TABLES):
                    value = partition.stores[table].get(key)
                    if value is not None:
                        await remove(settings, producer, table, number, [(key, value)])
        done = ["the room was removed from the tables"]
        if self._with_row:
            done.append(f"{await self._delete_row()} was deleted from {settings.table}")
        await refuse_while_running(settings, "they were started meanwhile, and may know it still")
        return done

    async def _delete_row(self) -> str:
        """Raises SinkUnavailable where there is no database, and RecoveryError where it refuses."""
        table = Table.parse(self._settings.table)
        connections = Connections(postgres_settings(self._settings, pool_size=1))
        try:
            async with connections.use() as connection:
                status = await connection.execute(delete_sql(table), self._hotel, self._room)
        except asyncpg.PostgresError as error:
            raise RecoveryError(
                f"the room was removed from the tables, but its row cannot be deleted: {error}"
            ) from error
        finally:
            await connections.stop(timeout=1.0)
        return "1 row" if status == "DELETE 1" else "no row"
