"""Whether a worker can make progress at all: what a restart would mend, and nothing else.

Servers that are away are no reason to restart anybody. So no part is asked whether it gets on, only
whether it is still there: tasks that must never end must not have ended, and what happens twice a
second by itself, in the worker's thread and in the consumer's, must have happened lately.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["Liveness"]

#: Far beyond any stall that passes, and any that the load on a machine can cause.
STANDSTILL_S: Final = 60.0


class Liveness:
    """The parts of a worker that must neither end nor stand still."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock`` answers seconds."""
        self._clock = clock
        self._running: dict[str, bool] = {}
        self._ticks: dict[str, float] = {}

    @contextmanager
    def running(self, part: str) -> Iterator[None]:
        """Around the whole of a task that must not end, however that happens."""
        self._running[part] = True
        try:
            yield
        finally:
            self._running[part] = False

    def tick(self, part: str) -> None:
        """What must happen again and again has happened. From any thread."""
        self._ticks[part] = self._clock()

    def failed(self) -> list[str]:
        """The parts that have ended, or stand still; those that have not begun do not count."""
        oldest = self._clock() - STANDSTILL_S
        return [
            *(f"{part} has ended" for part, runs in self._running.items() if not runs),
            *(f"{part} stands still" for part, at in list(self._ticks.items()) if at < oldest),
        ]
