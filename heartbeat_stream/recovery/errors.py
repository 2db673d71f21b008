"""What keeps a recovery from being done, in words for the operator."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["PartlyDone", "RecoveryError"]


class RecoveryError(Exception):
    """The message is one line that says what is in the way, and what to do."""


class PartlyDone(RecoveryError):
    """It went to its end, but for something. ``done``: what was done, in lines for people."""

    def __init__(self, message: str, done: Sequence[str]) -> None:
        super().__init__(message)
        self.done = done
