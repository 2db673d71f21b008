"""The two layers of a worker without Kafka, Faust, a disk and a database: driven by hand.

What a checkpoint keeps goes through the very encoding that the job's tables use.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from heartbeat_stream.core.cooldown import Schedule
from heartbeat_stream.core.heartbeat import Bounds, Heartbeat, room_key
from heartbeat_stream.core.latest import Merged, Shard, merge
from heartbeat_stream.core.partition import partition_for
from heartbeat_stream.core.room import NEVER, Phase, Room, Stored, Written
from heartbeat_stream.jobs.heartbeat_tables import (
    ChangedDelta,
    SettledDelta,
    encode,
    read_stored,
    read_written,
)

ANY_TIME = Bounds(0, 2**60)
HOTEL = 7
ALL_OF_IT = -1
IN_FLIGHT = (Phase.FLIGHT, Phase.FLIGHT_NEWER)


@dataclass(slots=True)
class SourceRecord:
    """A record as it comes from the source topic."""

    offset: int
    key: bytes | None
    value: bytes | None


class Settings(NamedTuple):
    window: int
    cooldown: int
    buffer_size_max: int = 5000


def record_of(heartbeat: Heartbeat, offset: int = 0) -> SourceRecord:
    key = room_key(heartbeat.hotel_id, heartbeat.room_id)
    return SourceRecord(offset, key, encode(heartbeat))


@dataclass
class Tables:
    """The tables ``latest`` and ``last_written_at`` as they are on disk, by partition and key."""

    latest: dict[int, dict[bytes, bytes]] = field(default_factory=lambda: defaultdict(dict))
    written: dict[int, dict[bytes, bytes]] = field(default_factory=lambda: defaultdict(dict))

    def find(self, partition: int, key: bytes) -> tuple[Stored, Written | None] | None:
        latest = self.latest[partition].get(key)
        if latest is None:
            return None
        written = self.written[partition].get(key)
        return read_stored(latest), read_written(written) if written else None

    def scan(self, partition: int) -> Iterator[tuple[bytes, Stored, Written | None]]:
        for key in sorted(self.latest[partition]):
            found = self.find(partition, key)
            assert found is not None
            yield key, *found


@dataclass(eq=False)
class Batch:
    """Rooms that were handed to the database together, and the rows that it was given."""

    rooms: list[Room]
    rows: list[Heartbeat]


class Worker:
    """A worker's schedule and shards, on tables that it may share with others."""

    def __init__(self, settings: Settings, tables: Tables, partitions: int = 1) -> None:
        self.schedule = Schedule(*settings)
        self.tables = tables
        self.partitions = partitions
        self.shards: dict[int, Shard] = {}

    # -- partitions come and go ------------------------------------------------------------------

    def load(self, partition: int, now: int) -> None:
        """The partition is assigned: memory learns what the tables know."""
        shard = self.shards.setdefault(partition, Shard(partition, self.schedule))
        for key, room in shard.rooms.items():
            stored, written = self.tables.find(partition, key) or (None, None)
            shard.reconcile(room, stored, written, now)
        for key, stored, written in self.tables.scan(partition):
            pending = written is None or stored.ts_ms > written.ts_ms
            if key not in shard.rooms and pending:
                shard.restore(key, stored, written, now=now)
        shard.unpark(now)

    def park(self, partition: int) -> None:
        self.shards[partition].park()

    # -- records come in -------------------------------------------------------------------------

    def receive(self, records: Sequence[SourceRecord], now: int) -> Merged:
        """Records of one partition, in one batch."""
        partition = partition_for(records[0].key or b"", self.partitions)
        shard = self.shards[partition]
        merged = merge(shard, records, ANY_TIME, now)
        for key, candidate in merged.missed.items():
            shard.admit(key, self.tables.find(partition, key), candidate, now)
        return merged

    # -- rows go out -----------------------------------------------------------------------------

    def take(self, now: int, limit: int) -> Batch | None:
        rooms = self.schedule.take(now, limit)
        return Batch(rooms, [room.newest for room in rooms]) if rooms else None

    def acknowledge(self, batch: Batch, now: int) -> None:
        self.schedule.acknowledge(batch.rooms, [row.ts_ms for row in batch.rows], now)
        for room in batch.rooms:
            self.shards[room.partition].note_settled([room])

    def fail(self, batch: Batch) -> None:
        self.schedule.give_back(batch.rooms)

    # -- state becomes durable -------------------------------------------------------------------

    def checkpoint(self, partitions: Iterable[int] | None = None, kept: int = ALL_OF_IT) -> None:
        """``kept`` has two bits for each partition, for the two tables: where one is 0, a crash
        came before that part."""
        for partition in self.shards if partitions is None else partitions:
            shard = self.shards[partition]
            no_table: Any = None
            for part, delta, table in (
                (2 * partition, ChangedDelta(no_table, shard), self.tables.latest),
                (2 * partition + 1, SettledDelta(no_table, shard), self.tables.written),
            ):
                if not kept >> part & 1:
                    continue
                for record in delta.encode(0, len(delta)):
                    assert record.key is not None
                    assert record.value is not None
                    table[partition][record.key] = record.value

    def forget_clean(self, partition: int) -> None:
        """Memory is short: forget what the tables know as well."""
        rooms = self.shards[partition].rooms
        for key in [key for key, room in rooms.items() if room.clean]:
            del rooms[key]

    # -- what must always hold -------------------------------------------------------------------

    def rooms(self) -> Iterator[Room]:
        for shard in self.shards.values():
            yield from shard.rooms.values()

    def check(self) -> None:
        """The counters, the flags and the phases of the rooms tell one story."""
        rooms = list(self.rooms())
        schedule = self.schedule
        idle = [r for r in rooms if r.phase == Phase.IDLE]
        parked = [r for r in rooms if r.phase == Phase.PARKED]
        assert schedule.pending == len(rooms) - len(idle) - len(parked)
        assert schedule.in_flight == sum(r.phase in IN_FLIGHT for r in rooms)
        assert schedule.cooling == sum(r.phase == Phase.COOLING for r in rooms)
        assert schedule.waiting == sum(r.phase == Phase.WAITING for r in rooms)
        assert schedule.waiting < schedule._buffer_size_max
        assert not any(r.pending for r in idle), "a pending room that nobody will write"
        for phase in (Phase.COOLING, Phase.WAITING, Phase.DUE):
            assert all(r.pending for r in rooms if r.phase == phase), "nothing new, yet scheduled"
        for shard in self.shards.values():
            for flagged, noted in (
                ({r.key for r in shard.rooms.values() if r.changed}, shard.changed),
                ({r.key for r in shard.rooms.values() if r.settled}, shard.settled),
            ):
                assert flagged == {r.key for r in noted}
                assert len(flagged) == len(noted)
            for room in shard.rooms.values():
                if room.clean:
                    self._check_against_tables(room)

    def _check_against_tables(self, room: Room) -> None:
        found = self.tables.find(room.partition, room.key)
        assert found is not None, "forgotten by the tables, and memory may forget it, too"
        stored, written = found
        assert stored.ts_ms == room.newest.ts_ms
        at, ts_ms = (written.at, written.ts_ms) if written else (NEVER, NEVER)
        assert (at, ts_ms) == (room.written_at, room.written_ts)
