"""Until when a worker can be sure that its partitions are its own.

The coordinator of the group gives a member's partitions to others when it has not heard of it for
the length of a session. So the member's own are certain for as long after it *asked* for something
that the coordinator then granted. Somebody who was frozen, or cut off from the coordinator alone,
finds out by looking at the clock, before any answer can tell; by then another worker may be writing
the same rooms.
"""

import time
from collections.abc import Callable

__all__ = ["Lease", "steady_s"]


def steady_s() -> float:
    """Seconds of a clock that never steps and goes on while the process, or the machine, sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Lease:
    """Renewed by the consumer's thread, read by the worker's; neither waits for the other.

    ``patience_s``: how much longer nothing is written once it has lapsed. By then another worker,
    if there is one, has taken over and written all that this one knows of: writing it then does no
    harm, since it cannot take a row back, and where there is no other, because all brokers are
    away, rows come late rather than with the next broker.
    """

    def __init__(
        self, session_s: float, patience_s: float, now: Callable[[], float] = steady_s
    ) -> None:
        self._session_s = session_s
        self._patience_s = patience_s
        self._now = now
        self._renewed_at = float("-inf")

    def renew(self, asked_at: float) -> None:
        """The coordinator has granted what was asked at this time of :func:`steady_s`."""
        self._renewed_at = max(self._renewed_at, asked_at)

    @property
    def age_s(self) -> float:
        """Seconds since the question that was granted last; infinite where there was none."""
        return self._now() - self._renewed_at

    @property
    def held(self) -> bool:
        """Whether nobody else can have our partitions."""
        return self.age_s < self._session_s

    @property
    def may_write(self) -> bool:
        """Whether rows may be written: it is held, or all that it protects from is over."""
        return not self._session_s <= self.age_s < self._session_s + self._patience_s
