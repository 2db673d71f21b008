"""`state forget` and `state get`: one room, by its hotel and its name."""

from __future__ import annotations

from collections.abc import Sequence

from heartbeat_stream.core.heartbeat import room_key
from heartbeat_stream.core.partition import partition_for
from heartbeat_stream.recovery.cluster import (
    look_while_running,
    open_producer,
    refuse_while_running,
)
from heartbeat_stream.recovery.discarding import remove
from heartbeat_stream.recovery.errors import RecoveryError
from heartbeat_stream.recovery.moments import shown_time
from heartbeat_stream.recovery.operation import Progress
from heartbeat_stream.recovery.tables import RoomState, count_partitions, read_tables
from heartbeat_stream.recovery.target import delete_row, has_row
from heartbeat_stream.settings import Settings
from heartbeat_stream.sinks.postgres_errors import SinkUnavailable
from heartbeat_stream.streaming.topics import TABLES

__all__ = ["Forgetting", "find_room"]

_WHY = "the one that has the room in memory would put it back"


async def find_room(settings: Settings, hotel: int, room: str, progress: Progress) -> RoomState:
    """The room as the changelogs have it. Raises RecoveryError where they do not know it."""
    state = await _look_for(settings, hotel, room, progress)
    if state is None:
        raise RecoveryError(_unknown(settings, hotel, room))
    return state


async def _look_for(
    settings: Settings, hotel: int, room: str, progress: Progress
) -> RoomState | None:
    key = room_key(hotel, room)
    number = partition_for(key, await count_partitions(settings))
    async for partition in read_tables(settings, progress, partitions=[number]):
        for state in partition.rooms():
            if state.key == key:
                return state
    return None


def _unknown(settings: Settings, hotel: int, room: str) -> str:
    return (
        f"the tables of {settings.app_id} do not know hotel {hotel}, room {room}: a room id is "
        "taken as it is, with case and spaces"
    )


class Forgetting:
    """`state forget`. See :class:`heartbeat_stream.recovery.operation.Operation`.

    ``with_row``: the row goes, too, or its ``ts_ms`` would turn away the heartbeats that follow;
    also where the tables do not know the room any more. ``dry_run``: workers may run.
    """

    def __init__(
        self, settings: Settings, hotel: int, room: str, *, with_row: bool, dry_run: bool = False
    ) -> None:
        self._settings = settings
        self._hotel = hotel
        self._room = room
        self._with_row = with_row
        self._dry_run = dry_run

    async def plan(self, progress: Progress) -> Sequence[str]:
        settings = self._settings
        lines = await look_while_running(settings, _WHY, dry_run=self._dry_run)
        state = await _look_for(settings, self._hotel, self._room, progress)
        row = await has_row(settings, self._hotel, self._room) if self._with_row else False
        if state is None and not row:
            raise RecoveryError(self._nowhere())
        lines += self._lines_of_tables(state)
        if row:
            lines.append(f"its row in {settings.table} is deleted")
        elif self._with_row:
            lines.append(f"it has no row in {settings.table}")
        else:
            lines.append(self._row_stays())
        return lines

    def _nowhere(self) -> str:
        """Why there is nothing to forget."""
        unknown = _unknown(self._settings, self._hotel, self._room)
        if self._with_row:
            return f"{unknown}; and there is no row of it in {self._settings.table}"
        return f"{unknown}. With --row its row in {self._settings.table}, if any, is deleted"

    def _lines_of_tables(self, state: RoomState | None) -> list[str]:
        named = f"hotel {self._hotel}, room {self._room}"
        if state is None:
            return [f"the tables do not know {named} (any more): nothing leaves them"]
        ts_ms = state.stored.ts_ms
        lines = [
            f"{named} leaves the tables: its newest heartbeat is of {shown_time(ts_ms)} ({ts_ms})"
        ]
        if state.pending:
            lines.append("that heartbeat is not in the database yet, and will not come there")
        return lines

    def _row_stays(self) -> str:
        return (
            f"its row in {self._settings.table}, if it has one, stays, and takes no heartbeat that "
            "is older than it: --row deletes it, too"
        )

    async def run(self, progress: Progress) -> Sequence[str]:
        settings = self._settings
        await refuse_while_running(settings, _WHY)
        removed = await self._remove(progress)
        done = ["the room was removed from the tables" if removed else "the tables did not know it"]
        done.append(await (self._delete_row() if self._with_row else self._note_row()))
        await refuse_while_running(settings, "they were started meanwhile, and may know it still")
        return done

    async def _remove(self, progress: Progress) -> int:
        """Take it out of the tables; how many entries it had."""
        settings, removed = self._settings, 0
        key = room_key(self._hotel, self._room)
        number = partition_for(key, await count_partitions(settings))
        async with open_producer(settings) as producer:
            async for partition in read_tables(settings, progress, partitions=[number]):
                for table in reversed(TABLES):
                    value = partition.stores[table].get(key)
                    if value is not None:
                        removed += await remove(settings, producer, table, number, [(key, value)])
        return removed

    async def _delete_row(self) -> str:
        """Raises RecoveryError where the row cannot be deleted."""
        try:
            deleted = await delete_row(self._settings, self._hotel, self._room)
        except SinkUnavailable as error:
            raise RecoveryError(
                "the room is not in the tables any more, but its row cannot be deleted "
                f"({error}): mend that, and repeat the command"
            ) from error
        return f"{'1 row' if deleted else 'no row'} was deleted from {self._settings.table}"

    async def _note_row(self) -> str:
        """What is to be known of the row that was left."""
        try:
            row = await has_row(self._settings, self._hotel, self._room)
        except SinkUnavailable:
            return self._row_stays()
        if not row:
            return f"it has no row in {self._settings.table}"
        return (
            f"its row in {self._settings.table} is still there, and takes no heartbeat that is "
            "older than it: repeat the command with --row to delete it"
        )
