"""What keeps a recovery from being done, in words for the operator."""

from __future__ import annotations

__all__ = ["RecoveryError"]


class RecoveryError(Exception):
    """The message is one line that says what is in the way, and what to do."""
