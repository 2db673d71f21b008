"""A room in memory: its newest heartbeat, its last write, and where it stands between the two."""

from enum import IntEnum
from sys import intern
from typing import Final

import msgspec

from heartbeat_stream.core.heartbeat import Heartbeat

__all__ = ["NEVER", "Phase", "Room", "Stored", "Written"]

#: The ``at`` of a room that was never written: so long ago that every cooldown is over.
NEVER: Final = -(2**62)

# The numbers of all hotels met, at most 32,768: what is decoded is a new object each time.
_HOTELS: Final[dict[int, int]] = {}
# Times of a worker's clock, as met in the tables: a batch of rooms was written at the same one.
_TIMES: Final[dict[int, int]] = {}
_MOST_TIMES: Final = 50_000


def _shared(time: int) -> int:
    """The same time, as one object for all rooms that have it."""
    if len(_TIMES) >= _MOST_TIMES:
        _TIMES.clear()
    return _TIMES.setdefault(time, time)


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

    Kept small, and out of the garbage collector's sight, since there may be a million of them: the
    fields of the newest heartbeat are the room's own, a hotel's number is one object, and so is a
    room's name, which many hotels have.
    ``newer_at`` is what ``arrived_at`` becomes once the write in flight is acknowledged.
    ``changed`` and ``settled`` say that the tables ``latest`` and ``last_written_at`` do not hold
    the room's state yet.
    """

    hotel_id: int
    room_id: str
    key: bytes
    partition: int
    ts_ms: int
    device_id: str | None
    status: int | None
    source_partition: int
    source_offset: int
    arrived_at: int
    written_at: int = NEVER
    written_ts: int = NEVER
    newer_at: int = NEVER
    phase: int = 0
    changed: bool = False
    settled: bool = False

    @classmethod
    def first(
        cls,
        heartbeat: Heartbeat,
        key: bytes,
        partition: int,
        source_partition: int,
        source_offset: int,
        arrived_at: int,
    ) -> "Room":
        """A room that no table knows, with its first heartbeat. It starts idle and unflagged."""
        return cls(
            _HOTELS.setdefault(heartbeat.hotel_id, heartbeat.hotel_id),
            intern(heartbeat.room_id),
            key,
            partition,
            heartbeat.ts_ms,
            heartbeat.device_id,
            heartbeat.status,
            source_partition,
            source_offset,
            arrived_at,
        )

    @classmethod
    def restored(
        cls, partition: int, key: bytes, stored: Stored, written: Written | None
    ) -> "Room":
        """The room as the two tables know it. It starts idle: a schedule says what follows."""
        return cls(
            _HOTELS.setdefault(stored.hotel_id, stored.hotel_id),
            intern(stored.room_id),
            key,
            partition,
            stored.ts_ms,
            stored.device_id,
            stored.status,
            stored.source_partition,
            stored.source_offset,
            _shared(stored.arrived_at),
            NEVER if written is None else _shared(written.at),
            NEVER if written is None else written.ts_ms,
        )

    def take(self, heartbeat: Heartbeat, source_partition: int, source_offset: int) -> None:
        """Make this heartbeat of the same room the newest one. The hot loops have this inlined."""
        self.ts_ms = heartbeat.ts_ms
        self.device_id = heartbeat.device_id
        self.status = heartbeat.status
        self.source_partition = source_partition
        self.source_offset = source_offset

    @property
    def newest(self) -> Heartbeat:
        """A copy of the newest heartbeat, as it is now."""
        return Heartbeat(self.hotel_id, self.room_id, self.ts_ms, self.device_id, self.status)

    @property
    def pending(self) -> bool:
        """Whether the newest heartbeat is newer than the one that was written."""
        return self.ts_ms > self.written_ts

    @property
    def clean(self) -> bool:
        """Whether the tables know all of this, so that memory may forget it."""
        return self.phase == Phase.IDLE and not self.changed and not self.settled

    def stored(self) -> Stored:
        return Stored(
            self.hotel_id,
            self.room_id,
            self.ts_ms,
            self.device_id,
            self.status,
            self.source_partition,
            self.source_offset,
            self.arrived_at,
        )
