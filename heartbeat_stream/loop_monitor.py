"""How long the event loop was kept from what it was to do.

Everything of a worker runs on one event loop: while a piece of work holds it, no due room is
written and no health check is answered. A task that only wants to sleep for ten milliseconds sees
how late it is woken.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable

__all__ = ["LoopMonitor"]

_INTERVAL_S = 0.01
#: For how long a stall is reported, so that whoever asks every half minute misses none.
_REMEMBERED_S = 60.0


class LoopMonitor:
    """Measures stalls of the loop that :meth:`run` runs on."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        """``clock`` answers seconds."""
        self._clock = clock
        # When, and how long: only what no later stall has outdone, so the longest comes first.
        self._stalls: deque[tuple[float, float]] = deque()

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            before = self._clock()
            await asyncio.sleep(_INTERVAL_S)
            self.note(self._clock() - before - _INTERVAL_S)

    def note(self, seconds: float) -> None:
        """The loop has just been held up for so long."""
        stalls = self._stalls
        while stalls and stalls[-1][1] <= seconds:
            stalls.pop()
        stalls.append((self._clock(), seconds))
        self._forget()

    def longest(self) -> float:
        """Seconds of the longest stall within the last minute; 0 where there was none."""
        self._forget()
        return max(0.0, self._stalls[0][1]) if self._stalls else 0.0

    def _forget(self) -> None:
        oldest = self._clock() - _REMEMBERED_S
        while self._stalls and self._stalls[0][0] < oldest:
            self._stalls.popleft()
