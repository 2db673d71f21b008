"""A room in memory: its newest heartbeat, its last write, and where it stands between the two."""

from enum import IntEnum
from typing import Final

import msgspec

from heartbeat_stream.core.heartbeat import Heartbeat, room_key

__all__ = ["NEVER", "Phase", "Room", "Stored", "Written"]

#: The ``at`` of a room that was never written: so long ago that every cooldown is over.
NEVER: Final = -(2**62)


class Phase(IntEnum):
    """Where a room stands. Below COOLING, a new heartbeat has something to start."""

    IDLE = 0  #: nothing to write
    FLIGHT = 1  #: being written, and nothing newer has arrived
    COOLING = 2  #: to be written, but its cooldown is not over
    WAITING = 3  #: its cooldown is over, and it waits only for its window
    DUE = 4  #: to be written now
    FLIGHT_NEWER = 5  #: being written, and something newer has arrived meanwhile
    PARKED = 6  #: its partition is not ours to write at the moment


class Stored(msgspec.Struct, gc=False):
    """What the table ``latest`` holds of a room: a heartbeat, where and when it came in.

    ``source_partition`` and ``source_offset`` are those of the source topic. ``arrived_at`` is
    when the first heartbeat arrived that is not known to be written, in milliseconds of the
    worker's clock: with it a restart gives the room the same due time as before.
    """

    hotel_id: int
    room_id: str
    ts_ms: int
    device_id: str | None
    status: int | None
    source_partition: int
    source_offset: int
    arrived_at: int


class Written(msgspec.Struct, gc=False):
    """What the table ``last_written_at`` holds: when the last write was acknowledged, in
    milliseconds of the worker's clock, and the ``ts_ms`` that it wrote."""

    at: int
    ts_ms: int


class Room(msgspec.Struct, gc=False, eq=False):
    """A room that is pending or was touched lately.

    Kept small, and out of the garbage collector's sight, since there may be a million of them.
    ``newer_at`` is what ``arrived_at`` becomes once the write in flight is acknowledged.
    ``changed`` and ``settled`` say that the tables ``latest`` and ``last_written_at`` do not hold
    the room's state yet.
    """

    newest: Heartbeat
    key: bytes
    partition: int
    source_partition: int
    source_offset: int
    arrived_at: int
    written_at: int = NEVER
    written_ts: int = NEVER
    newer_at: int = NEVER
    wake: int = NEVER
    phase: int = 0
    changed: bool = False
    settled: bool = False

    @classmethod
    def restored(cls, partition: int, stored: Stored, written: Written | None) -> "Room":
        """The room as the two tables know it. It starts idle: a schedule says what follows."""
        newest = Heartbeat(
            stored.hotel_id, stored.room_id, stored.ts_ms, stored.device_id, stored.status
        )
        room = cls(
            newest,
            room_key(stored.hotel_id, stored.room_id),
            partition,
            stored.source_partition,
            stored.source_offset,
            stored.arrived_at,
        )
        if written is not None:
            room.written_at = written.at
            room.written_ts = written.ts_ms
        return room

    @property
    def pending(self) -> bool:
        """Whether the newest heartbeat is newer than the one that was written."""
        return self.newest.ts_ms > self.written_ts

    @property
    def clean(self) -> bool:
        """Whether the tables know all of this, so that memory may forget it."""
        return self.phase == Phase.IDLE and not self.changed and not self.settled

    def stored(self) -> Stored:
        newest = self.newest
        return Stored(
            newest.hotel_id,
            newest.room_id,
            newest.ts_ms,
            newest.device_id,
            newest.status,
            self.source_partition,
            self.source_offset,
            self.arrived_at,
        )
