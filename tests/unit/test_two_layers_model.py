"""The two layers against a naive model of what they promise, through thousands of interleavings.

The instants are few and small, so that much happens at the same one.
"""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import event, given, settings
from hypothesis import strategies as st

from heartbeat_stream.core.heartbeat import Heartbeat, room_key
from heartbeat_stream.core.partition import partition_for
from heartbeat_stream.core.room import Phase
from tests.support.layers import HOTEL, Batch, Settings, SourceRecord, Tables, Worker, record_of
from tests.support.two_layers_model import Model

ROOMS = ["a", "b", "c", "d", "e"]
PARTITIONS = 2
PARTITION = {room: partition_for(room_key(HOTEL, room), PARTITIONS) for room in ROOMS}
#: The order in which a worker reads rooms from its tables: by partition and key.
SCAN_ORDER = sorted(ROOMS, key=lambda room: (PARTITION[room], room))


class Arrive(NamedTuple):
    after: int
    room: str
    ts: int


class WriteDue(NamedTuple):
    after: int
    limit: int


class Answer(NamedTuple):
    """The database answers one of the batches that it was given, if there is any."""

    after: int
    which: int
    lands: bool


class Checkpoint(NamedTuple):
    after: int


class Crash(NamedTuple):
    """``kept`` says what of a checkpoint was still made: see the worker's."""

    after: int
    kept: int


class Forget(NamedTuple):
    after: int


Step = Arrive | WriteDue | Answer | Checkpoint | Crash | Forget

LIMITS = [99, 99, 2, 1]


def step_of(what: int, how: int, ts: int) -> Step:
    """Reads a step from three bytes: much faster than a strategy for each of its parts."""
    what, after = what % 16, max(what // 16 - 5, 0)
    if what < 6:
        return Arrive(after, ROOMS[how % len(ROOMS)], ts % 40)
    if what < 10:
        return WriteDue(after, LIMITS[how % len(LIMITS)])
    if what < 13:
        return Answer(after, how, lands=ts % 4 > 0)
    return (Checkpoint(after), Forget(after), Crash(after, how % 16))[what - 13]


def steps_of(code: bytes) -> list[Step]:
    return [step_of(*code[at : at + 3]) for at in range(0, len(code) - 2, 3)]


STEPS = st.binary(min_size=60, max_size=300).map(steps_of)
SETTINGS = st.builds(
    Settings,
    window=st.sampled_from([0, 1, 5, 10]),
    cooldown=st.sampled_from([0, 1, 3, 5, 20]),
    buffer_size_max=st.sampled_from([1, 2, 3, 5000]),
)


class Both:
    """A worker and the model of it, to which the same happens."""

    def __init__(self, of: Settings) -> None:
        self.settings = of
        self.model = Model(of)
        self.tables = Tables()
        self.now = 0
        self.not_committed: list[tuple[str, SourceRecord, int]] = []
        self.in_flight: list[Batch] = []
        self.database: dict[str, int] = {}
        self.newest: dict[str, int] = {}
        self.worker = self.start()

    def start(self) -> Worker:
        worker = Worker(self.settings, self.tables, PARTITIONS)
        for partition in range(PARTITIONS):
            worker.load(partition, self.now)
        return worker

    def step(self, step: Step) -> None:
        self.now += step.after
        self.model.go_on(self.now)
        match step:
            case Arrive():
                record = record_of(Heartbeat(HOTEL, step.room, step.ts))
                self.not_committed.append((step.room, record, step.ts))
                self.newest[step.room] = max(self.newest.get(step.room, 0), step.ts)
                self.arrive(step.room, record, step.ts)
            case WriteDue():
                self.write_due(step.limit)
            case Answer():
                if self.in_flight:
                    self.answer(step.which, step.lands)
            case Checkpoint():
                self.worker.checkpoint()
                self.model.checkpoint()
                self.not_committed.clear()
            case Crash():
                self.in_flight.clear()
                self.worker.checkpoint(kept=step.kept)
                self.model.begin_checkpoint(
                    {room for room in ROOMS if step.kept >> 2 * PARTITION[room] & 1},
                    {room for room in ROOMS if step.kept >> 2 * PARTITION[room] + 1 & 1},
                )
                self.worker = self.start()
                self.model.restart(SCAN_ORDER)
                for again in self.not_committed:
                    self.arrive(*again)
            case Forget():
                for partition in range(PARTITIONS):
                    self.worker.forget_clean(partition)
        self.worker.check()

    def arrive(self, room: str, record: SourceRecord, ts: int) -> None:
        self.worker.receive([record], self.now)
        self.model.arrive(room, ts)

    def write_due(self, limit: int) -> None:
        self.compare()
        due = {name for name in self.model.rooms if self.model.phase(name) == "DUE"}
        batch = self.worker.take(self.now, limit)
        taken = [row.room_id for row in batch.rows] if batch else []
        assert len(taken) == len(set(taken)) == min(limit, len(due))
        assert due.issuperset(taken)
        for name in taken:
            self.model.hand_over(name)
        if batch:
            event("a batch is handed over")
            for row in batch.rows:
                assert row.ts_ms == self.model.rooms[row.room_id].newest
            self.in_flight.append(batch)
        self.compare()

    def answer(self, which: int, lands: bool) -> None:
        batch = self.in_flight.pop(which % len(self.in_flight))
        if not lands:
            event("a batch fails")
            self.worker.fail(batch)
            for row in batch.rows:
                self.model.fail(row.room_id)
            return
        self.worker.acknowledge(batch, self.now)
        for row in batch.rows:
            self.model.acknowledge(row.room_id)
            self.database[row.room_id] = max(self.database.get(row.room_id, 0), row.ts_ms)

    def compare(self) -> None:
        schedule = self.worker.schedule
        # Waiting rooms are brought up to now by being asked for; parked ones are not there.
        in_due_order = schedule.due(self.now)
        phases = {room.newest.room_id: Phase(room.phase).name for room in self.worker.rooms()}
        expected = {name: self.model.phase(name) for name in self.model.rooms}
        # A room that was forgotten has nothing to write.
        assert {name: phases.get(name, "IDLE") for name in expected} == expected
        assert in_due_order == sum(phase == "DUE" for phase in expected.values())
        assert schedule.waiting == len(self.model.buffer)

    def finish(self) -> None:
        """The database is well, and the worker looks up only when it says that it must."""
        while True:
            while self.in_flight:
                self.answer(0, True)
            self.write_due(99)
            if self.in_flight:
                continue
            if self.worker.schedule.pending == 0:
                break
            wake = self.worker.schedule.next_instant()
            assert wake is not None, "a pending room that nobody will look at"
            assert wake > self.now
            self.now = wake
            self.model.go_on(self.now)
        self.worker.check()
        assert self.database == self.newest


@settings(max_examples=1500, deadline=None, derandomize=True)
@given(SETTINGS, STEPS)
def test_a_worker_does_what_the_model_does(of: Settings, steps: list[Step]) -> None:
    both = Both(of)
    for step in steps:
        both.step(step)
    both.finish()
