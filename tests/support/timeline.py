"""Runs a timeline of ``tests/cases``: arrivals at given times, and what is written when.

The clock is injected and jumps from one instant at which something happens to the next. At one
instant, the database answers first, then records arrive, then the worker is restarted, and at last
the worker writes what is due.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from heartbeat_stream.core.heartbeat import Heartbeat, room_key
from heartbeat_stream.core.partition import partition_for
from heartbeat_stream.core.room import Stored, Written
from heartbeat_stream.jobs.heartbeat_tables import encode
from tests.support.layers import HOTEL, Batch, Settings, Tables, Worker, record_of

PARTITIONS = 3


class Event(msgspec.Struct, forbid_unknown_fields=True):
    at: int
    ts: int
    room: str = "r"
    device: str | None = None
    status: int | None = None


class Write(msgspec.Struct, forbid_unknown_fields=True):
    """What is written, and when it is handed to the database: up to ``tolerance`` later is fine.

    What is left out of ``device`` and ``status`` is not looked at.
    """

    at: int
    ts: int
    room: str = "r"
    device: str | msgspec.UnsetType | None = msgspec.UNSET
    status: int | msgspec.UnsetType | None = msgspec.UNSET
    tolerance: int = 0


class Restart(msgspec.Struct, forbid_unknown_fields=True):
    """Everything in memory is lost. What happened until then is in the checkpoint."""

    at: int


class State(msgspec.Struct, forbid_unknown_fields=True):
    """A room that was written before the timeline begins."""

    ts: int
    last_written_at: int
    room: str = "r"


class Timeline(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    window: int
    cooldown: int
    events: list[Event]
    writes: list[Write]
    buffer_size_max: int = 5000
    database_down: list[tuple[int, int]] = []
    acknowledged_after: int = 0
    restarts: list[Restart] = []
    state: State | list[State] | None = None
    note: str = ""


def read_timelines(path: Path) -> list[Timeline]:
    return msgspec.json.decode(path.read_bytes(), type=list[Timeline])


class FakeDatabase:
    """Answers after a while, and is down at times: it then refuses, at once, also what it has not
    answered yet. A row never goes back in ``ts_ms``."""

    def __init__(self, down: list[tuple[int, int]], answers_after: int) -> None:
        self._down = down
        self._answers_after = answers_after
        self.rows: dict[str, Heartbeat] = {}

    def answer(self, handed_at: int) -> tuple[int, bool]:
        """When a batch that is handed over now is answered, and whether it lands."""
        until = handed_at + self._answers_after
        for start, end in self._down:
            if start <= until and handed_at < end:
                return max(start, handed_at), False
        return until, True

    def land(self, rows: list[Heartbeat]) -> None:
        for row in rows:
            there = self.rows.get(row.room_id)
            if there is None or row.ts_ms > there.ts_ms:
                self.rows[row.room_id] = row


class Run:
    """One timeline on one worker. ``writes`` are those that landed, as they were handed over."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._settings = Settings(timeline.window, timeline.cooldown, timeline.buffer_size_max)
        self._tables = Tables()
        self.database = FakeDatabase(timeline.database_down, timeline.acknowledged_after)
        self.writes: list[tuple[int, Heartbeat]] = []
        self._in_flight: list[tuple[int, bool, Batch]] = []
        self._retry_at = 0
        self._backoff = 0
        self._fill_tables()
        self._worker = self._start(0)

    def _fill_tables(self) -> None:
        state = self._timeline.state
        for one in state if isinstance(state, list) else [state] if state else []:
            key = room_key(HOTEL, one.room)
            partition = partition_for(key, PARTITIONS)
            stored = Stored(HOTEL, one.room, one.ts, None, None, partition, 0, one.last_written_at)
            self._tables.latest[partition][key] = encode(stored)
            self._tables.written[partition][key] = encode(Written(one.last_written_at, one.ts))

    def _start(self, now: int) -> Worker:
        self._retry_at = self._backoff = 0
        worker = Worker(self._settings, self._tables, PARTITIONS)
        for partition in range(PARTITIONS):
            worker.load(partition, now)
        return worker

    def run(self) -> None:
        now: int | None = 0
        while now is not None:
            self._settle(now)
            for event in self._timeline.events:
                if event.at == now:
                    self._arrive(event)
            if any(restart.at == now for restart in self._timeline.restarts):
                self._in_flight.clear()
                self._worker.checkpoint()
                self._worker = self._start(now)
            self._write_due(now)
            self._worker.check()
            later = min(self._instants(now), default=None)
            assert later is None or later > now, "nothing was done about what is due"
            now = later
        assert self._worker.schedule.pending == 0

    def _instants(self, now: int) -> Iterator[int]:
        """When something happens after now."""
        timeline = self._timeline
        yield from (event.at for event in timeline.events if event.at > now)
        yield from (restart.at for restart in timeline.restarts if restart.at > now)
        yield from (answered_at for answered_at, _, _ in self._in_flight)
        if self._worker.schedule.due(now):
            yield self._retry_at
        wake = self._worker.schedule.next_instant()
        if wake is not None:
            yield wake

    def _arrive(self, event: Event) -> None:
        heartbeat = Heartbeat(HOTEL, event.room, event.ts, event.device, event.status)
        self._worker.receive([record_of(heartbeat)], event.at)
        self._worker.check()

    def _write_due(self, now: int) -> None:
        limit = self._timeline.buffer_size_max
        while now >= self._retry_at and (batch := self._worker.take(now, limit)):
            answered_at, lands = self.database.answer(now)
            if lands:
                self.writes += [(now, row) for row in batch.rows]
            self._in_flight.append((answered_at, lands, batch))
            self._settle(now)

    def _settle(self, now: int) -> None:
        answered = [one for one in self._in_flight if one[0] <= now]
        self._in_flight = [one for one in self._in_flight if one[0] > now]
        for _, lands, batch in answered:
            if lands:
                self.database.land(batch.rows)
                self._worker.acknowledge(batch, now)
                self._backoff = 0
            else:
                self._worker.fail(batch)
                self._backoff = min(max(2 * self._backoff, 50), 1000)
                self._retry_at = now + self._backoff


def fits(expected: Write, at: int, row: Heartbeat) -> bool:
    return (
        expected.at <= at <= expected.at + expected.tolerance
        and (expected.room, expected.ts) == (row.room_id, row.ts_ms)
        and expected.device in (msgspec.UNSET, row.device_id)
        and expected.status in (msgspec.UNSET, row.status)
    )
