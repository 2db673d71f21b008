"""Handing due rooms to the sink, and settling what comes of it."""

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from heartbeat_stream.complaints import Complaints
from heartbeat_stream.core.cooldown import Schedule
from heartbeat_stream.core.heartbeat import Heartbeat
from heartbeat_stream.core.reasons import Rejected
from heartbeat_stream.core.room import Room
from heartbeat_stream.distribution import COUNTS, SECONDS, Distribution
from heartbeat_stream.sinks.postgres import Refused, SinkUnavailable

__all__ = ["Drain", "Sink"]

logger = logging.getLogger(__name__)

_BACKOFF_FIRST_MS = 50
#: Once the database answers again, a due room is tried within this time.
_BACKOFF_MOST_MS = 1000
#: How long a write that was cut may take to end.
_CANCEL_S = 1.0


class Sink(Protocol):
    """Where due rooms go."""

    async def upsert(self, rows: Sequence[Heartbeat]) -> list[Refused]:
        """Land all rows but those answered. Raises SinkUnavailable if it is no row's fault."""


#: Makes a dead letter of a row, given the room and what stood in the source topic for it.
Refuse = Callable[[Room, Heartbeat, tuple[int, int], Rejected], Awaitable[None]]


class Drain:
    """The writes of one worker: batches of due rooms, several at once, tried until they land."""

    def __init__(
        self,
        schedule: Schedule,
        sink: Sink,
        *,
        batch_max: int,
        batches_at_once: int,
        now_ms: Callable[[], int],
        refuse: Refuse,
        settled: Callable[[Sequence[Room]], None],
    ) -> None:
        """``settled`` is told which rooms have been written, or refused for good."""
        self._schedule = schedule
        self._sink = sink
        self._batch_max = batch_max
        self._batches_at_once = batches_at_once
        self._now_ms = now_ms
        self._refuse = refuse
        self._settled = settled
        self._writes: dict[asyncio.Task[None], list[Room]] = {}
        self._backoff_ms = 0
        self._retry_at = 0
        self._away_since: int | None = None
        self._said_away = False  # whether a line of the log tells of it
        self._complaints = Complaints(logger)
        self.rows_written = 0
        self.rows_refused = 0
        self.retries: Counter[str] = Counter()
        self.last_error: str | None = None
        #: Of each batch that landed: how long its upsert took, its rows, and how long after its
        #: first room had become due it was acknowledged.
        self.upsert_seconds = Distribution(SECONDS)
        self.upsert_rows = Distribution(COUNTS)
        self.delay_seconds = Distribution(SECONDS)

    @property
    def is_open(self) -> bool:
        """Whether the database took what it was given last."""
        return self._backoff_ms == 0

    def start_due(self) -> None:
        """Start writing what is due, in as many batches at once as there may be."""
        now = self._now_ms()
        if now < self._retry_at:
            return
        while len(self._writes) < self._batches_at_once:
            rooms = self._schedule.take(now, self._batch_max)
            if not rooms:
                return
            task = asyncio.create_task(self._write(rooms))
            self._writes[task] = rooms
            task.add_done_callback(lambda task: self._writes.pop(task, None))

    async def _write(self, rooms: list[Room]) -> None:
        rows = [room.newest for room in rooms]
        sources = [(room.source_partition, room.source_offset) for room in rooms]
        due_at = self._schedule.due_at(rooms[0])
        started = time.perf_counter()
        try:
            refused = await self._sink.upsert(rows)
            self.upsert_seconds.observe(time.perf_counter() - started)
            for one in refused:
                await self._refuse(
                    rooms[one.index],
                    rows[one.index],
                    sources[one.index],
                    Rejected(one.reason, one.detail),
                )
                self._complaints.warning(
                    "the database refuses a row of hotel %d (%s): it is a dead letter now, and the "
                    "room's row stays as it was until the next heartbeat",
                    rows[one.index].hotel_id,
                    one.detail,
                )
        except SinkUnavailable as exc:
            self._give_back(rooms)
            self._back_off(exc)
            return
        except BaseException:  # cancelled, too: what was taken stays pending
            self._give_back(rooms)
            raise
        self._note_open()
        self.rows_written += len(rooms) - len(refused)
        self.rows_refused += len(refused)
        self.upsert_rows.observe(len(rows))
        self.delay_seconds.observe(max(0, self._now_ms() - due_at) / 1000)
        if self._still_mine():
            self._schedule.acknowledge(rooms, [row.ts_ms for row in rows], self._now_ms())
            self._settled(rooms)

    def _give_back(self, rooms: list[Room]) -> None:
        if self._still_mine():
            self._schedule.give_back(rooms)

    def _still_mine(self) -> bool:
        """Whether the rooms of the write that asks were not taken from it by :meth:`quiesce`."""
        return asyncio.current_task() in self._writes

    def _note_open(self) -> None:
        """The database has taken what it was given, or refused rows of it for what they are."""
        self._backoff_ms = 0
        self.last_error = None
        if self._away_since is not None and self._said_away:
            away_s = (self._now_ms() - self._away_since) / 1000
            logger.info("the database takes rows again after %.1f s", away_s)
        self._away_since, self._said_away = None, False

    def _back_off(self, exc: SinkUnavailable) -> None:
        self._backoff_ms = min(max(2 * self._backoff_ms, _BACKOFF_FIRST_MS), _BACKOFF_MOST_MS)
        self._retry_at = self._now_ms() + int(self._backoff_ms * random.uniform(0.5, 1.0))
        self.retries[exc.kind] += 1
        self.last_error = str(exc)
        if self._away_since is None:
            self._away_since = self._now_ms()
        # One that comes and goes is not said to be back more often than to be away.
        self._said_away |= self._complaints.warning(
            "the database does not take rows (%s): they stay pending and are tried again", exc
        )

    async def quiesce(self, timeout_s: float) -> None:
        """Return when nothing is in flight; what still is after the timeout is cut, and stays due.

        A write that was cut may land all the same. It harms nothing: it cannot take a row back.
        """
        if not self._writes:
            return
        _, late = await asyncio.wait(self._writes, timeout=timeout_s)
        for task in late:
            task.cancel()
        if late:
            _, stuck = await asyncio.wait(late, timeout=min(timeout_s, _CANCEL_S))
            for task in stuck:  # it goes on, but its rooms are no longer its own
                self._schedule.give_back(self._writes.pop(task))
