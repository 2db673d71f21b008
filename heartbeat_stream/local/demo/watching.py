"""Looking at everything twice a second, and showing it."""

from __future__ import annotations

import asyncio
import time
from typing import NamedTuple

import asyncpg

from heartbeat_stream.local.demo.baseline import Baseline, TopicFollower
from heartbeat_stream.local.demo.figures import Figures, Rates
from heartbeat_stream.local.demo.screen import Screen
from heartbeat_stream.local.demo.view import Scene, frame, log_line, seconds, web_view
from heartbeat_stream.local.demo.worker import DemoWorker
from heartbeat_stream.local.fleet_rooms import build_rooms
from heartbeat_stream.local.process import ServerError
from heartbeat_stream.local.stack import EmbeddedStack
from heartbeat_stream.settings import Settings
from heartbeat_stream.sinks.table import Table

__all__ = ["FleetSize", "Watcher"]

_LOOK_S = 0.5
_LOG_EVERY_S = 5.0


class FleetSize(NamedTuple):
    """What the fleet is like, and for how long it sends."""

    seconds: float
    hotels: int
    rooms: int
    rate: float
    seed: int


class Watcher:
    """Knows how the worker is doing. `figures` are those of the last look."""

    def __init__(
        self,
        *,
        screen: Screen,
        stack: EmbeddedStack,
        worker: DemoWorker,
        connection: asyncpg.Connection,
        settings: Settings,
        size: FleetSize,
        baseline: Baseline,
        follower: TopicFollower,
    ) -> None:
        self.baseline = baseline
        self.figures = Figures()
        #: When rows were last seen to have been written, by the monotonic clock.
        self.wrote_at_s = time.monotonic()
        self.fleet = (
            f"{size.hotels:,} x {size.rooms:,} rooms, {size.rate:,g} heartbeats a second; "
            f"window {seconds(settings.buffer_window_ms)}, "
            f"cooldown {seconds(settings.cooldown_ms)}"
        )
        self._screen = screen
        self._stack = stack
        self._worker = worker
        self._connection = connection
        self._settings = settings
        self._count_rows = f"SELECT count(*) FROM {Table.parse(settings.table).quoted}"
        self._follower = follower
        self._room = build_rooms(1, size.rooms)[0].key.decode()
        self._rates = Rates()
        self._look_at_s = 0.0
        self._log_at_s = 0.0
        if not screen.live:
            screen.say(*web_view(worker.url, self._room))

    async def look(self, phase: str) -> None:
        """Wait until it is time, look, and show what there is.

        Raises ServerError where a server or the worker has ended or does not answer, and
        KafkaError where the topic cannot be followed.
        """
        await asyncio.sleep(max(0.0, self._look_at_s - time.monotonic()))
        self._look_at_s = time.monotonic() + _LOOK_S
        self._check_servers()
        if not await self.ask():
            phase = f"{phase}; the worker does not answer"
        self._show(phase, await self._rows())

    async def ask(self) -> bool:
        """Bring `figures` up to date, now; False where the worker does not answer at the moment.

        Raises ServerError where it has ended or has been silent for long.
        """
        figures = await self._worker.figures()
        if figures is None:
            return False
        now = time.monotonic()
        if figures.rows_written > self.figures.rows_written:
            self.wrote_at_s = now
        self.figures = figures
        self._rates.note(now, figures)
        return True

    def _check_servers(self) -> None:
        failure = self._stack.failure()
        if failure is not None:
            raise ServerError(failure)
        self._follower.check()

    async def _rows(self) -> int:
        try:
            return int(await self._connection.fetchval(self._count_rows, timeout=10.0))
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
            raise ServerError(f"PostgreSQL does not answer: {error or type(error)}") from error

    def _show(self, phase: str, rows: int) -> None:
        scene = Scene(
            phase=phase,
            fleet=self.fleet,
            figures=self.figures,
            records_per_s=self._rates.per_second(lambda figures: figures.records),
            rows_per_s=self._rates.per_second(lambda figures: figures.rows_written),
            rows=rows,
            unread=max(0, self._follower.end - self.figures.records),
            baseline=self.baseline.writes,
            window_ms=self._settings.buffer_window_ms,
            cooldown_ms=self._settings.cooldown_ms,
            url=self._worker.url,
            room=self._room,
        )
        if self._screen.live:
            self._screen.draw(frame(scene))
        elif time.monotonic() >= self._log_at_s:
            self._log_at_s = time.monotonic() + _LOG_EVERY_S
            self._screen.say(log_line(scene))
