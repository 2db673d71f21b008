"""Which heartbeat of a room wins: the one with the greatest ``ts_ms``, first come on a tie.

A batch of records is merged in one pass. It is the only loop of the product that runs once per
heartbeat, so it is written out rather than composed.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from heartbeat_stream.core.cooldown import Schedule
from heartbeat_stream.core.heartbeat import Bounds, Heartbeat, canonical_key_matches, decode
from heartbeat_stream.core.reasons import Reason, Rejected
from heartbeat_stream.core.room import NEVER, Phase, Room, Stored, Written

__all__ = [
    "Candidate",
    "Combined",
    "Merged",
    "Record",
    "Shard",
    "combine",
    "encode_candidate",
    "merge",
    "merge_forwarded",
]


class Record(Protocol):
    """What is needed of a record that was fetched from a topic."""

    offset: int
    key: bytes | None
    value: bytes | None


class Candidate(msgspec.Struct, gc=False, array_like=True):
    """A heartbeat that may become its room's newest, and where in the source topic it stood.

    In JSON, as ``[heartbeat, partition, offset]``, it is what the repartition topic carries.
    """

    heartbeat: Heartbeat
    source_partition: int
    source_offset: int


encode_candidate = msgspec.json.Encoder().encode
_decode_candidate = msgspec.json.Decoder(Candidate).decode


class Merged(msgspec.Struct):
    """What became of a batch. ``missed`` holds, of each room that memory did not know, the newest
    candidate: the caller looks the rooms up and hands both to :meth:`Shard.admit`. ``stale`` counts
    the records that were no newer than what memory, or the batch so far, knew of their room."""

    rejected: list[tuple[Record, Rejected]]
    missed: dict[bytes, Candidate]
    stale: int = 0
    tombstones: int = 0


class Shard:
    """The rooms of one partition that are in memory.

    ``changed`` and ``settled`` are the rooms whose entry in ``latest`` and in ``last_written_at``
    the next checkpoint is to write.
    """

    def __init__(self, partition: int, schedule: Schedule) -> None:
        self.partition = partition
        self.schedule = schedule
        self.rooms: dict[bytes, Room] = {}
        self.changed: list[Room] = []
        self.settled: list[Room] = []

    def admit(
        self,
        key: bytes,
        found: tuple[Stored, Written | None] | None,
        candidate: Candidate,
        now: int,
    ) -> bool:
        """Bring a room into memory, as the tables know it, and merge a candidate into it.

        Answers whether the candidate is the newest.
        """
        if found is None:
            room = Room.first(
                candidate.heartbeat,
                key,
                self.partition,
                candidate.source_partition,
                candidate.source_offset,
                now,
            )
            self.rooms[key] = room
            self.note_changed(room)
            self.schedule.note_newer(room, now)
            return True
        room = self.restore(key, *found, now=now)
        if candidate.heartbeat.ts_ms <= room.ts_ms:
            return False
        room.take(candidate.heartbeat, candidate.source_partition, candidate.source_offset)
        self.note_changed(room)
        if room.phase < Phase.COOLING:
            self.schedule.note_newer(room, now)
        return True

    def restore(self, key: bytes, stored: Stored, written: Written | None, *, now: int) -> Room:
        """Bring a room into memory as the tables know it, scheduled where it is pending."""
        room = Room.restored(self.partition, key, stored, written)
        self.rooms[key] = room
        if room.written_at > now:
            # A last write ahead of the clock counts as now (promise 7), and stays so after the
            # next checkpoint: or every restart would begin the cooldown anew.
            room.written_at = now
            self.note_settled((room,))
        if room.pending:
            if room.arrived_at > now:
                self.note_changed(room)  # for the same reason
            self.schedule.enter(room, now)
        return room

    def reconcile(
        self, room: Room, stored: Stored | None, written: Written | None, now: int
    ) -> None:
        """The tables may know more of a room in memory than memory does: keep the newer of each.

        What memory knows better is flagged for the next checkpoint.
        """
        flying = room.phase in (Phase.FLIGHT, Phase.FLIGHT_NEWER)
        if not flying:
            self.schedule.park([room])
        if written is not None:
            room.written_at = max(room.written_at, min(written.at, now))
            room.written_ts = max(room.written_ts, written.ts_ms)
        if stored is None or stored.ts_ms < room.ts_ms:
            self.note_changed(room)
        elif stored.ts_ms > room.ts_ms:
            self._adopt(room, stored, now)
        if room.written_ts != NEVER and written != Written(room.written_at, room.written_ts):
            self.note_settled((room,))
        if not flying:
            room.phase = Phase.IDLE
            if room.pending:
                self.schedule.enter(room, now)

    def _adopt(self, room: Room, stored: Stored, now: int) -> None:
        arrived_at = min(stored.arrived_at, now)
        if room.phase == Phase.FLIGHT:
            room.phase = Phase.FLIGHT_NEWER
            room.newer_at = arrived_at
        elif room.phase == Phase.FLIGHT_NEWER:
            room.newer_at = min(room.newer_at, arrived_at)
        elif room.pending:
            room.arrived_at = min(room.arrived_at, arrived_at)
        else:
            room.arrived_at = arrived_at
        room.ts_ms = stored.ts_ms
        room.device_id = stored.device_id
        room.status = stored.status
        room.source_partition = stored.source_partition
        room.source_offset = stored.source_offset

    def note_changed(self, room: Room) -> None:
        if not room.changed:
            room.changed = True
            self.changed.append(room)

    def note_settled(self, rooms: Iterable[Room]) -> None:
        for room in rooms:
            if not room.settled:
                room.settled = True
                self.settled.append(room)
            if room.pending:
                # What arrived during the write is now the first new heartbeat: see ``arrived_at``.
                self.note_changed(room)

    def park(self) -> None:
        """The partition is given up, or may be: nothing of it is due until :meth:`unpark`."""
        self.schedule.park(self.rooms.values())

    def unpark(self, now: int) -> None:
        """The partition is ours again, and what memory holds of it is what the tables hold."""
        for room in self.rooms.values():
            if room.phase == Phase.PARKED:
                room.phase = Phase.IDLE
                if room.pending:
                    self.schedule.enter(room, now)


def merge(shard: Shard, records: Sequence[Record], bounds: Bounds, now: int) -> Merged:
    """Merge records of a source topic that is keyed by room. Neither blocks nor raises."""
    rejected: list[tuple[Record, Rejected]] = []
    missed: dict[bytes, Candidate] = {}
    merged = Merged(rejected, missed)
    partition = shard.partition
    schedule = shard.schedule
    find = shard.rooms.get
    note_changed = shard.changed.append
    stale = 0
    for record in records:
        value = record.value
        if value is None:
            merged.tombstones += 1
            continue
        try:
            heartbeat = decode(value, bounds)
        except Rejected as exc:
            rejected.append((record, exc))
            continue
        key = record.key
        room = find(key)  # type: ignore[arg-type]  # None is in no dict with keys of bytes
        if room is None:
            if key is None or not canonical_key_matches(key, heartbeat):
                rejected.append((record, _wrong_key(heartbeat)))
                continue
            known = missed.get(key)
            if known is None or heartbeat.ts_ms > known.heartbeat.ts_ms:
                missed[key] = Candidate(heartbeat, partition, record.offset)
            else:
                stale += 1
            continue
        if heartbeat.room_id != room.room_id or heartbeat.hotel_id != room.hotel_id:
            rejected.append((record, _wrong_key(heartbeat)))
            continue
        if heartbeat.ts_ms <= room.ts_ms:
            stale += 1
            continue
        room.ts_ms = heartbeat.ts_ms
        room.device_id = heartbeat.device_id
        room.status = heartbeat.status
        room.source_partition = partition
        room.source_offset = record.offset
        if not room.changed:
            room.changed = True
            note_changed(room)
        if room.phase < 2:  # below Phase.COOLING
            schedule.note_newer(room, now)
    merged.stale = stale
    return merged


def merge_forwarded(shard: Shard, records: Sequence[Record], now: int) -> Merged:
    """Merge records of the repartition topic, which :func:`combine` has judged already."""
    rejected: list[tuple[Record, Rejected]] = []
    missed: dict[bytes, Candidate] = {}
    merged = Merged(rejected, missed)
    schedule = shard.schedule
    find = shard.rooms.get
    note_changed = shard.changed.append
    stale = 0
    for record in records:
        key = record.key
        try:
            candidate = _decode_candidate(record.value or b"")
        except (msgspec.DecodeError, RecursionError) as exc:
            rejected.append((record, Rejected(Reason.NOT_JSON, f"in the repartition topic: {exc}")))
            continue
        heartbeat = candidate.heartbeat
        room = find(key)  # type: ignore[arg-type]
        if room is None:
            if key is None or not canonical_key_matches(key, heartbeat):
                rejected.append((record, _wrong_key(heartbeat)))
                continue
            known = missed.get(key)
            if known is None or heartbeat.ts_ms > known.heartbeat.ts_ms:
                missed[key] = candidate
            else:
                stale += 1
            continue
        if heartbeat.ts_ms <= room.ts_ms:
            stale += 1
            continue
        room.ts_ms = heartbeat.ts_ms
        room.device_id = heartbeat.device_id
        room.status = heartbeat.status
        room.source_partition = candidate.source_partition
        room.source_offset = candidate.source_offset
        if not room.changed:
            room.changed = True
            note_changed(room)
        if room.phase < 2:  # below Phase.COOLING
            schedule.note_newer(room, now)
    merged.stale = stale
    return merged


class Combined(msgspec.Struct):
    """What goes on of a batch: of each room, by hotel and room id, only the newest."""

    rejected: list[tuple[Record, Rejected]]
    newest: dict[tuple[int, str], Candidate]
    tombstones: int = 0
    stale: int = 0


def combine(records: Sequence[Record], partition: int, bounds: Bounds) -> Combined:
    """Judge records of a source topic that is not keyed. Neither blocks nor raises."""
    rejected: list[tuple[Record, Rejected]] = []
    newest: dict[tuple[int, str], Candidate] = {}
    combined = Combined(rejected, newest)
    find = newest.get
    for record in records:
        value = record.value
        if value is None:
            combined.tombstones += 1
            continue
        try:
            heartbeat = decode(value, bounds)
        except Rejected as exc:
            rejected.append((record, exc))
            continue
        room = (heartbeat.hotel_id, heartbeat.room_id)
        known = find(room)
        if known is None or heartbeat.ts_ms > known.heartbeat.ts_ms:
            newest[room] = Candidate(heartbeat, partition, record.offset)
    combined.stale = len(records) - combined.tombstones - len(rejected) - len(newest)
    return combined


def _wrong_key(heartbeat: Heartbeat) -> Rejected:
    return Rejected(
        Reason.WRONG_KEY, f"the key must be {heartbeat.hotel_id}:{ascii(heartbeat.room_id)[1:-1]}"
    )
