"""A simulated fleet: hotels full of rooms whose devices repeat themselves, come late and break.

Together with the records it keeps an oracle: what the newest heartbeat of each room must be once
all records have been worked off, in whatever order.
"""

import random
from collections import Counter
from dataclasses import dataclass, field

from heartbeat_stream.core.heartbeat import Heartbeat
from heartbeat_stream.core.reasons import Reason
from heartbeat_stream.local.fleet_faults import FAULTS
from heartbeat_stream.local.fleet_rooms import HOTELS_MAX, ROOMS_MAX, Room, build_rooms
from heartbeat_stream.local.record_sender import Record

_JITTER_MS = 50
"""A report on time is up to this old: so two of a room sometimes come in the wrong order."""


@dataclass
class FleetCounts:
    """How many records were made, by what they are in the order in which they were made.

    ``newer`` ones are newer than all before them of their room, ``duplicates`` repeat the newest
    byte for byte, ``late`` ones are older. ``broken`` ones must become dead letters, counted by
    reason.
    """

    newer: int = 0
    duplicates: int = 0
    late: int = 0
    broken: Counter[Reason] = field(default_factory=Counter)

    @property
    def sent(self) -> int:
        return self.newer + self.duplicates + self.late + self.broken.total()


@dataclass
class Fleet:
    """A fleet that is the same for the same arguments, and sends the same for the same calls.

    ``keyed`` gives each record the key of its room (and some broken ones a key that is not
    canonical); otherwise records have none. The shares say how often each is meant to happen;
    where a room reports often, some of the others turn out late or as duplicates, too. Raises
    :class:`ValueError` for arguments that make no fleet.
    """

    hotels: int = 20
    rooms_per_hotel: int = 100
    seed: int = 1
    keyed: bool = False
    duplicate_share: float = 0.08
    late_share: float = 0.06
    broken_share: float = 0.005
    late_by_max_ms: int = 120_000
    counts: FleetCounts = field(default_factory=FleetCounts, init=False)

    def __post_init__(self) -> None:
        if not 1 <= self.hotels <= HOTELS_MAX:
            raise ValueError(f"a fleet has 1 to {HOTELS_MAX} hotels, not {self.hotels}")
        if self.rooms_per_hotel < 1:
            raise ValueError(f"a hotel has 1 room or more, not {self.rooms_per_hotel}")
        rooms = self.hotels * self.rooms_per_hotel
        if rooms > ROOMS_MAX:
            raise ValueError(f"a fleet has at most {ROOMS_MAX:,} rooms in all, not {rooms:,}")
        self._rooms = build_rooms(self.hotels, self.rooms_per_hotel)
        self._newest_ts_ms = [0] * len(self._rooms)
        self._random = random.Random(self.seed)

    @property
    def room_count(self) -> int:
        return len(self._rooms)

    def oracle(self) -> dict[bytes, Heartbeat]:
        """The newest heartbeat of each room that has sent one, by the room's key."""
        return {
            room.key: room.heartbeat(ts_ms)
            for room, ts_ms in zip(self._rooms, self._newest_ts_ms, strict=True)
            if ts_ms
        }

    def generate(self, now_ms: int, n: int) -> list[Record]:
        """The next ``n`` records, as they are sent at this time; 2 to 3 us for each."""
        rooms, newest, draw = self._rooms, self._newest_ts_ms, self._random.random
        broken_below = self.broken_share
        late_below = broken_below + self.late_share
        duplicate_below = late_below + self.duplicate_share
        records: list[Record] = []
        broken = duplicates = late = 0
        for _ in range(n):
            index = int(draw() * len(rooms))
            room = rooms[index]
            kind = draw()
            if kind < broken_below:
                records.append(self._broken(room, now_ms))
                broken += 1
                continue
            if kind < late_below:
                ts_ms = now_ms - 1 - int(draw() ** 3 * self.late_by_max_ms)  # mostly not by much
            elif kind < duplicate_below and newest[index]:
                ts_ms = newest[index]
            else:
                ts_ms = now_ms - int(draw() * _JITTER_MS)
            if ts_ms > newest[index]:
                newest[index] = ts_ms
            elif ts_ms == newest[index]:
                duplicates += 1
            else:
                late += 1
            records.append((room.key if self.keyed else None, room.value(ts_ms)))
        self.counts.newer += n - broken - duplicates - late
        self.counts.duplicates += duplicates
        self.counts.late += late
        return records

    def _broken(self, room: Room, now_ms: int) -> Record:
        which = int(self._random.random() * (len(FAULTS) + self.keyed))
        if which == len(FAULTS):
            self.counts.broken[Reason.WRONG_KEY] += 1
            return b"0" + room.key, room.value(now_ms)
        reason, value_of = FAULTS[which]
        self.counts.broken[reason] += 1
        return (room.key if self.keyed else None), value_of(room, now_ms)
