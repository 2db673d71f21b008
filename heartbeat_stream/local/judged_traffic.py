"""Traffic of the jobs that judge messages: sent at a rate, and compared with what came of it.

What each record is in truth is known when it is made. So it can be said of what a worker puts out
whether it took something new for a duplicate (*false*), or a duplicate for new (*missed*).
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from heartbeat_stream.local.simulate import records_due
from heartbeat_stream.settings import Settings

__all__ = ["Feed", "Outlet", "Truth", "Watcher", "now_ms", "send_feed"]

_TICK_S = 0.02
_SLICE = 2000
_LOOK_S = 0.1
#: So long nothing more has come when it is taken for all.
_QUIET_S = 3.0


class Truth(NamedTuple):
    """How what was put out differs from what should have been."""

    false: int
    """New ones that were not put out."""
    missed: int
    """Duplicates that were."""
    repeated: int
    """Records that were put out again, as after a crash: the same record of the source."""
    lost: int = 0
    """Records, duplicates or not, that were to be kept and are nowhere."""

    @property
    def wrong(self) -> bool:
        """Whether a promise is broken. What comes again after a crash is not."""
        return bool(self.false or self.missed or self.lost)


class Outlet(Protocol):
    """Where traffic is sent to."""

    async def send(self, now_ms: int, n: int) -> int:
        """Make and send ``n`` records or a few more; how many. Waits while the other end is slower.

        Raises SendError, or KafkaError, also for what an earlier call has sent.
        """

    async def flush(self) -> None:
        """Return once everything is acknowledged. Raises as :meth:`send` does."""


class Watcher(ABC):
    """Hands to a feed what comes out."""

    def __init__(self) -> None:
        self._last_at = time.monotonic()
        self.taken = 0
        self.newest = ""

    def _took(self, count: int) -> None:
        """So many more have come out."""
        if count:
            self.taken += count
            self._last_at = time.monotonic()

    @abstractmethod
    async def run(self) -> None:
        """Watch, until this is cancelled."""

    async def until_all(
        self, expected: int, seconds: float, on_progress: Callable[[], None]
    ) -> None:
        """Return when as many as expected have come, and then no more; or after so long."""
        deadline = time.monotonic() + seconds
        self._last_at = time.monotonic()
        while time.monotonic() < deadline:
            on_progress()
            quiet = time.monotonic() - self._last_at >= _QUIET_S
            if self.taken >= expected and quiet:
                return
            await asyncio.sleep(_LOOK_S)


class Feed(Protocol):
    """The traffic of one job."""

    counts: Counter[str]
    """What was made, by what it is."""

    def outlet(self, settings: Settings) -> AbstractAsyncContextManager[Outlet]:
        """Open the way to where it is sent. Raises SendError where there is nothing."""

    def watching(self, settings: Settings) -> AbstractAsyncContextManager[Watcher]:
        """Watch what comes out from now on. Raises SendError where nothing can be watched."""

    @property
    def expected(self) -> int:
        """How many should come out."""

    def truth(self) -> Truth:
        """What became of all that was made, as far as it came out."""


async def send_feed(
    settings: Settings,
    feed: Feed,
    *,
    seconds: float,
    rate: float,
    on_progress: Callable[[int, float], None],
    stop: asyncio.Event,
) -> int:
    """Send ``rate`` records a second for so long; how many, all acknowledged.

    ``on_progress`` is told how many were sent, and after how many seconds. Raises SendError where
    what they are sent to is missing or refuses.
    """
    total, sent, started = round(rate * seconds), 0, time.monotonic()
    async with feed.outlet(settings) as outlet:
        while sent < total and not stop.is_set():
            elapsed = time.monotonic() - started
            due = min(records_due(elapsed, rate, total) - sent, _SLICE)
            if due > 0:
                sent += await outlet.send(now_ms(), due)
            on_progress(sent, elapsed)
            await asyncio.sleep(_TICK_S)
        await outlet.flush()
    return sent


def now_ms() -> int:
    """The time, for a record."""
    return time.time_ns() // 1_000_000
