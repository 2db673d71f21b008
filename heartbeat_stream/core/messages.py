"""The message filter: a text is printed unless the same text was printed within the window.

All times are the timestamps of the records, in milliseconds: a backlog is judged as it happened.
The time that counts is that of the last *print*, so a text that repeats for ever is printed once
per window. A text exactly one window later is printed.

Timestamps may step back. A text is suppressed only when its timestamp lies less than one window
from that of the print, on either side: slightly late copies stay hidden, and a clock that was set
back by an hour hides nothing for an hour.
"""

from typing import NamedTuple

import msgspec

__all__ = ["Decision", "Held", "Window", "content_key", "decode_held", "encode_held", "judge"]


class Window(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A text that was printed, and how many copies were suppressed since."""

    content: bytes
    printed_at_ms: int
    suppressed: int = 0


Held = tuple[Window, ...]
"""What is held under one key: one window, more only where the hashes of long texts collide."""


class Decision(NamedTuple):
    """Whether to print, and what is to be held under the key from now on.

    ``ended`` is the window that this print ends, if it suppressed something: its line comes first.
    """

    printed: bool
    held: Held
    ended: Window | None


def content_key(content: bytes) -> bytes:
    """What to partition by, and the key of the state: the text, or the hash of a long one."""
    raise NotImplementedError


def judge(content: bytes, at_ms: int, held: Held, window_ms: int) -> Decision:
    """Decide about one text. ``held`` is what state has under its :func:`content_key`, or ``()``.

    Raises :class:`~heartbeat_stream.core.reasons.Rejected` for what is no text.
    """
    raise NotImplementedError


def expire(held: Held, now_ms: int, window_ms: int) -> tuple[Held, Held]:
    """Those whose window is still open at this time, and those for which it has ended."""
    raise NotImplementedError


def encode_held(held: Held) -> bytes:
    """For a table."""
    raise NotImplementedError


def decode_held(data: bytes) -> Held:
    """Raises :class:`ValueError` for anything that :func:`encode_held` cannot have made."""
    raise NotImplementedError
