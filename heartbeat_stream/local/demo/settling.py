"""After the fleet has ended: waiting until the worker has done what it can do by then."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable

from heartbeat_stream.local.demo.figures import Figures
from heartbeat_stream.local.demo.watching import Watcher
from heartbeat_stream.local.offsets import end_offsets, open_group_offsets
from heartbeat_stream.settings import Settings
from heartbeat_stream.streaming.topics import repartition_topic_name

__all__ = ["Settling"]

#: Without any progress for so long, the worker has failed.
_PATIENCE_S = 20.0
#: How long somebody who wants to end waits for the worker to read what was sent.
_HURRY_S = 5.0
#: Cooldowns that end within this time are waited for.
COOLDOWN_WAIT_S = 20.0


class Settling:
    """Waits, in this order, for: everything read; no lag; nothing due; the last cooldowns.

    `problems` has a line for what did not come to pass in time. Once `stop` is set only the first
    is waited for, and not for long.
    """

    def __init__(
        self, watcher: Watcher, settings: Settings, sent: int, stop: asyncio.Event
    ) -> None:
        self._watcher = watcher
        self._settings = settings
        self._sent = sent
        self._stop = stop
        self._began_s = time.monotonic()
        self.problems: list[str] = []
        #: When the lag was seen to be 0; None where nobody has waited for it.
        self.no_lag_after_s: float | None = None

    @property
    def caught_up(self) -> bool:
        """Whether all that was sent has been read, and its fate is decided."""
        watcher = self._watcher
        return (
            watcher.figures.records >= self._sent
            and watcher.figures.on_the_way == 0
            and watcher.baseline.records >= self._sent
        )

    async def run(self) -> None:
        """Wait, within bounds. Raises ServerError as the watcher does, and KafkaError."""
        # Who is still to be written was written before now, if ever: what is written from now on
        # has nothing newer.
        over_at = self._watcher.wrote_at_s + self._settings.cooldown_ms / 1000
        if not await self._read_all() or self._stop.is_set():
            return
        await self._commit_all()
        await self._write_due()
        await self._end_cooldowns(over_at)

    async def _read_all(self) -> bool:
        most, moved_at = -1, time.monotonic()
        while not self.caught_up:
            stopped = self._stop.is_set()
            phase = "stopping" if stopped else "sent"
            await self._watcher.look(f"{phase}; the worker reads the rest")
            figures = self._watcher.figures
            progress = figures.dropped + figures.merged + self._watcher.baseline.records
            if progress > most and not stopped:
                most, moved_at = progress, time.monotonic()
            if time.monotonic() - moved_at > (_HURRY_S if stopped else _PATIENCE_S):
                if not stopped:
                    left = self._sent - figures.records + figures.on_the_way
                    self.problems.append(f"{left:,} of {self._sent:,} heartbeats are not done")
                return False
        return True

    async def _commit_all(self) -> None:
        patience = self._settings.checkpoint_ms / 1000 + _PATIENCE_S
        least, deadline = math.inf, 0.0
        while not self._stop.is_set():
            lag = await self._lag()
            if lag == 0:
                self.no_lag_after_s = time.monotonic() - self._began_s
                return
            if lag < least:
                least, deadline = lag, time.monotonic() + patience
            if time.monotonic() > deadline:
                self.problems.append(f"the lag has not gone to 0: {lag:,} records")
                return
            await self._watcher.look(f"sent; lag {lag:,}: offsets follow with the next checkpoint")

    async def _lag(self) -> int:
        """How many records of its topics the worker has not committed."""
        settings = self._settings
        topics = [settings.topic]
        if not settings.source_keyed:
            topics.append(repartition_topic_name(settings))
        brokers = ",".join(settings.brokers)
        lag = 0
        async with open_group_offsets(brokers, settings.app_id) as offsets:
            for topic in topics:
                committed = await offsets.committed(topic, settings.partitions)
                ends = await end_offsets(brokers, committed)
                lag += sum(end - committed[tp] for tp, end in ends.items())
        return lag

    async def _write_due(self) -> None:
        done = await self._wait(
            "lag 0; waiting until what is due is written",
            lambda figures: figures.pending == figures.cooling,
            self._settings.buffer_window_ms / 1000 + _PATIENCE_S,
        )
        if not done:
            figures = self._watcher.figures
            self.problems.append(
                f"{figures.pending - figures.cooling:,} rooms that are due were not written"
            )

    async def _end_cooldowns(self, over_at: float) -> None:
        left = over_at - time.monotonic()
        if left > COOLDOWN_WAIT_S:
            return
        done = await self._wait(
            "lag 0; the last cooldowns end",
            lambda figures: figures.pending == 0,
            left + self._settings.buffer_window_ms / 1000 + _PATIENCE_S,
        )
        if not done:
            self.problems.append(
                f"{self._watcher.figures.pending:,} rooms were not written after their cooldown"
            )

    async def _wait(self, phase: str, done: Callable[[Figures], bool], seconds: float) -> bool:
        """Whether it came to pass in time; true also where it is not waited for any more."""
        deadline = time.monotonic() + seconds
        while True:
            await self._watcher.look(phase)
            if self._stop.is_set() or done(self._watcher.figures):
                return True
            if time.monotonic() > deadline:
                return False
