"""Looking at rooms, for people: one of them, or those of a hotel a page at a time."""

import asyncio
from collections.abc import Callable, Mapping
from heapq import nsmallest
from typing import Final, Literal

import msgspec

from heartbeat_stream.core.cooldown import Schedule
from heartbeat_stream.core.heartbeat import Heartbeat
from heartbeat_stream.core.latest import Shard
from heartbeat_stream.core.room import NEVER, Phase, Room, Written
from heartbeat_stream.jobs.heartbeat_tables import find_rooms, read_stored, read_written
from heartbeat_stream.streaming.store import PartitionStore

__all__ = ["RoomState", "Rooms", "hotel_prefix"]

State = Literal["at rest", "being written", "in cooldown", "in its window", "due", "on hold"]

_STATES: Final[Mapping[int, State]] = {
    Phase.IDLE: "at rest",
    Phase.FLIGHT: "being written",
    Phase.FLIGHT_NEWER: "being written",
    Phase.COOLING: "in cooldown",
    Phase.WAITING: "in its window",
    Phase.DUE: "due",
    Phase.PARKED: "on hold",
}
_SCHEDULED: Final = {Phase.COOLING, Phase.WAITING, Phase.DUE}


class RoomState(msgspec.Struct, kw_only=True):
    """A room as it is now. Times are in ms since 1970; ``due_at`` is None where nothing waits."""

    newest: Heartbeat
    written: Written | None
    state: State
    due_at: int | None
    partition: int
    source_partition: int
    source_offset: int


def hotel_prefix(hotel_id: int) -> bytes:
    """What the keys of a hotel's rooms, and no others, begin with."""
    return b"%d:" % hotel_id


class Rooms:
    """The rooms of the partitions that are ours, in memory or not."""

    def __init__(
        self,
        schedule: Schedule,
        shards: Mapping[int, Shard],
        stores: Callable[[int], tuple[PartitionStore, PartitionStore]],
        owns: Callable[[int], bool],
    ) -> None:
        """``stores`` answers a partition's copies of both tables, where it is open."""
        self._schedule = schedule
        self._shards = shards
        self._stores = stores
        self._owns = owns

    def find(self, partition: int, key: bytes) -> Room | None:
        """A room of a partition that is ours; None if it is not known. Raises StoreError."""
        shard = self._shards.get(partition)
        if shard is None:
            return None
        room = shard.rooms.get(key)
        if room is not None:
            return room
        (found,) = find_rooms(*self._stores(partition), [key])
        return Room.restored(partition, key, *found) if found is not None else None

    def look(self, partition: int, key: bytes) -> RoomState | None:
        """The same for people. Raises StoreError."""
        room = self.find(partition, key)
        return self._state(room) if room is not None else None

    def _state(self, room: Room) -> RoomState:
        written = Written(room.written_at, room.written_ts) if room.written_ts != NEVER else None
        return RoomState(
            newest=room.newest,
            written=written,
            state=_STATES[room.phase],
            due_at=self._schedule.due_at(room) if room.phase in _SCHEDULED else None,
            partition=room.partition,
            source_partition=room.source_partition,
            source_offset=room.source_offset,
        )

    async def page(
        self, partitions: list[int], prefix: bytes, after: bytes, limit: int
    ) -> list[RoomState]:
        """At most so many rooms whose keys begin with ``prefix`` and come behind ``after``, in the
        order of their keys, out of all partitions together. Raises StoreError.

        Reads no more than so many keys of each partition, one partition at a time, between which
        the event loop goes on. A room that is new appears with the next checkpoint.
        """
        found: list[tuple[bytes, RoomState]] = []
        for partition in partitions:
            if self._owns(partition):  # it may have been given up meanwhile
                found += self._part(partition, prefix, after, limit)
            await asyncio.sleep(0)
        return [state for _, state in nsmallest(limit, found, key=lambda one: one[0])]

    def _part(
        self, partition: int, prefix: bytes, after: bytes, limit: int
    ) -> list[tuple[bytes, RoomState]]:
        latest, written = self._stores(partition)
        rows = latest.range(prefix, after, limit)
        writes = written.get_many([key for key, _ in rows])
        known = self._shards[partition].rooms
        rooms = [
            known.get(key)
            or Room.restored(
                partition, key, read_stored(raw), read_written(raw_written) if raw_written else None
            )
            for (key, raw), raw_written in zip(rows, writes, strict=True)
        ]
        return [(room.key, self._state(room)) for room in rooms]
