"""Two workers that hand partitions to one another, well and badly, and one database.

The workers' clocks differ by a constant. All times that a test sees are those of the first one.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from heartbeat_stream.core.heartbeat import Heartbeat, room_key
from heartbeat_stream.core.partition import partition_for
from heartbeat_stream.core.room import Phase
from tests.support.layers import (
    HOTEL,
    IN_FLIGHT,
    Batch,
    Settings,
    SourceRecord,
    Tables,
    Worker,
    record_of,
)

PARTITIONS = 2


@dataclass
class HandedOver:
    """A room's row that the database was given; never acknowledged where a crash came first."""

    at: int
    crashes_before: int
    acknowledged_at: int | None = None


@dataclass(eq=False)
class Flight:
    worker: int
    batch: Batch
    writes: list[HandedOver]


class Cluster:
    def __init__(self, settings: Settings, skew: int) -> None:
        self.settings = settings
        self.skew = skew
        self.tables = Tables()
        self.now = 0
        self.workers = [self._new_worker(), self._new_worker()]
        self.owner = dict.fromkeys(range(PARTITIONS), 0)
        #: What the source topic holds beyond the committed offset.
        self.log: dict[int, list[SourceRecord]] = {p: [] for p in range(PARTITIONS)}
        self.crashes = dict.fromkeys(range(PARTITIONS), 0)
        self.flights: list[Flight] = []
        self.writes: dict[str, list[HandedOver]] = {}
        self.database: dict[str, Heartbeat] = {}
        #: Since when each room has been pending, as the worker knows that has its partition now.
        self.pending_since: dict[str, int] = {}
        for partition in self.owner:
            self._load(partition)

    def _new_worker(self) -> Worker:
        return Worker(self.settings, self.tables, PARTITIONS)

    def clock(self, worker: int) -> int:
        return self.now + worker * self.skew

    # -- what happens ----------------------------------------------------------------------------

    def arrive(self, heartbeat: Heartbeat, offset: int) -> None:
        record = record_of(heartbeat, offset)
        partition = partition_for(record.key or b"", PARTITIONS)
        self.log[partition].append(record)
        self._receive(self.owner[partition], [record])

    def write_due(self, worker: int) -> None:
        while batch := self.workers[worker].take(self.clock(worker), 99):
            writes = []
            for room in batch.rooms:
                name = room.newest.room_id
                assert self.owner[room.partition] == worker, "written by who does not own it"
                assert name not in self._names_in_flight(), "two writes of a room in flight"
                writes.append(HandedOver(self.now, self.crashes[room.partition]))
                self.writes.setdefault(name, []).append(writes[-1])
            self.flights.append(Flight(worker, batch, writes))
        self._check_that_nothing_is_late(worker)

    def answer(self, flight: Flight, lands: bool) -> None:
        self.flights.remove(flight)
        worker = self.workers[flight.worker]
        if not lands:
            worker.fail(flight.batch)
            for row, write in zip(flight.batch.rows, flight.writes, strict=True):
                self.writes[row.room_id].remove(write)
            return
        worker.acknowledge(flight.batch, self.clock(flight.worker))
        for row, write in zip(flight.batch.rows, flight.writes, strict=True):
            write.acknowledged_at = self.now
            self._land(row)
            self.pending_since.pop(row.room_id, None)
        self._note_pending(flight.worker)

    def checkpoint(self, worker: int) -> None:
        owned = [partition for partition, owner in self.owner.items() if owner == worker]
        self.workers[worker].checkpoint(owned)
        for partition in owned:
            self.log[partition].clear()

    def hand_over(self, partition: int, to: int, *, well: bool, answers: bool) -> None:
        """The partition moves, after the writes in flight have ended; ``well`` if a checkpoint
        could be made before, and otherwise as if its owner had crashed."""
        giver = self.owner[partition]
        for flight in [flight for flight in self.flights if flight.worker == giver]:
            self.answer(flight, answers)
        if well:
            self.workers[giver].checkpoint([partition])
            self.log[partition].clear()
        else:
            self.crashes[partition] += 1
        self.workers[giver].park(partition)
        self.owner[partition] = to
        self._load(partition)

    def crash(self, worker: int, *, lands: bool, kept: int) -> None:
        """Also what was in flight is lost, whether or not it landed.

        ``kept`` says what of a checkpoint was still made: see the worker's.
        """
        owned = [partition for partition, owner in self.owner.items() if owner == worker]
        self.workers[worker].checkpoint(owned, kept)
        for flight in [flight for flight in self.flights if flight.worker == worker]:
            self.flights.remove(flight)
            if lands:
                for row in flight.batch.rows:
                    self._land(row)
        self.workers[worker] = self._new_worker()
        for partition in owned:
            self.crashes[partition] += 1
            self._load(partition)

    # --------------------------------------------------------------------------------------------

    def _load(self, partition: int) -> None:
        worker = self.owner[partition]
        self.workers[worker].load(partition, self.clock(worker))
        for name in list(self.pending_since):
            if partition_for(room_key(HOTEL, name), PARTITIONS) == partition:
                del self.pending_since[name]
        self._note_pending(worker)
        for record in self.log[partition]:
            self._receive(worker, [record])

    def _receive(self, worker: int, records: list[SourceRecord]) -> None:
        self.workers[worker].receive(records, self.clock(worker))
        self._note_pending(worker)

    def _note_pending(self, worker: int) -> None:
        for room in self.workers[worker].rooms():
            if self.owner[room.partition] == worker and room.pending:
                self.pending_since.setdefault(room.newest.room_id, self.now)

    def _land(self, row: Heartbeat) -> None:
        there = self.database.get(row.room_id)
        if there is None or row.ts_ms > there.ts_ms:
            self.database[row.room_id] = row

    def _names_in_flight(self) -> set[str]:
        return {row.room_id for flight in self.flights for row in flight.batch.rows}

    # -- what must hold --------------------------------------------------------------------------

    def check(self) -> None:
        for index, worker in enumerate(self.workers):
            worker.check()
            for room in worker.rooms():
                if self.owner[room.partition] == index:
                    assert room.phase != Phase.PARKED
                else:
                    assert room.phase == Phase.PARKED

    def _check_that_nothing_is_late(self, worker: int) -> None:
        """What is pending after all that is due was taken, may be so for a reason."""
        for room in self.workers[worker].rooms():
            if self.owner[room.partition] != worker or room.phase in IN_FLIGHT or not room.pending:
                continue
            name = room.newest.room_id
            last = max(
                (write.acknowledged_at or write.at for write in self.writes.get(name, [])),
                default=-(10**9),
            )
            window_ends = self.pending_since[name] + self.settings.window
            cooldown_ends = last + self.settings.cooldown
            assert self.now < max(window_ends, cooldown_ends) + abs(self.skew) + 1, "late"

    def check_cooldowns(self) -> None:
        """At most one write more than the cooldown allows for each crash."""
        for name, writes in self.writes.items():
            early = 0
            for before, after in pairwise(writes):
                ended = before.at if before.acknowledged_at is None else before.acknowledged_at
                if after.at < ended + self.settings.cooldown - abs(self.skew):
                    early += 1
                    assert early <= after.crashes_before, f"{name} is written too often"
