"""Saying that a server is away once in a while, not ten times a second."""

import logging
import time
from collections.abc import Callable

__all__ = ["Complaints"]


class Complaints:
    """A logger of warnings that repeats each kind at most once per interval.

    The kind is the message's format string. A line says how many were left out before it.
    """

    def __init__(
        self,
        logger: logging.Logger,
        interval_s: float = 10.0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._logger = logger
        self._interval_s = interval_s
        self._now = now
        self._said_at: dict[str, float] = {}
        self._left_out: dict[str, int] = {}

    def warning(self, message: str, *args: object) -> bool:
        """Log it, unless the same was said just now; whether it was logged."""
        now = self._now()
        said_at = self._said_at.get(message)
        if said_at is not None and now - said_at < self._interval_s:
            self._left_out[message] = self._left_out.get(message, 0) + 1
            return False
        self._said_at[message] = now
        left_out = self._left_out.pop(message, 0)
        suffix = f" ({left_out} more like this since the last line)" if left_out else ""
        self._logger.warning(message + suffix, *args)
        return True
