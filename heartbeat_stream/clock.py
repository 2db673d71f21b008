"""The worker's clock: wall time read once, and carried on by a clock that never steps.

A step of the system's clock under a running worker therefore changes nothing: no cooldown gets
longer or shorter, and no good heartbeat suddenly lies in the future. It is logged, since whatever
set the clock will also have set it for the devices, or should have.
"""

import logging
import time

__all__ = ["Clock"]

logger = logging.getLogger(__name__)

#: CLOCK_BOOTTIME goes on while the machine sleeps; where there is none, monotonic time must do.
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

_NOTABLE_STEP_MS = 1000
#: An earlier run that was further ahead than a day had a wrong clock, not this one.
_TRUSTED_LEAD_MS = 24 * 3_600_000


class Clock:
    """Milliseconds since 1970, at a steady pace from the moment this was made."""

    def __init__(self, not_before_ms: int = 0) -> None:
        """``not_before_ms`` is a time that has certainly passed, from an earlier run, say."""
        wall = time.time_ns() // 1_000_000
        if not_before_ms - wall > _TRUSTED_LEAD_MS:
            logger.warning(
                "an earlier run's clock was %d ms ahead of the system clock: that is too much to "
                "go by it",
                not_before_ms - wall,
            )
            not_before_ms = 0
        elif wall < not_before_ms:
            logger.warning(
                "the system clock is %d ms behind a time that this worker has seen: going on from "
                "there",
                not_before_ms - wall,
            )
        self._offset_ms = max(wall, not_before_ms) - _steady_ms()
        self._step_ms = wall - _steady_ms() - self._offset_ms

    def now_ms(self) -> int:
        return self._offset_ms + _steady_ms()

    def check(self) -> int:
        """Log it if the system clock has stepped since the last call; milliseconds of the step."""
        step = time.time_ns() // 1_000_000 - _steady_ms() - self._offset_ms
        moved = step - self._step_ms
        if abs(moved) < _NOTABLE_STEP_MS:
            return 0
        self._step_ms = step
        logger.warning("the system clock stepped by %d ms: this worker goes on as before", moved)
        return moved


def _steady_ms() -> int:
    return time.clock_gettime_ns(_STEADY) // 1_000_000
