"""The message filter: a text is printed unless the same text was printed within the window.

All times are the timestamps of the records, in milliseconds: a backlog is judged as it happened.
The time that counts is that of the last *print*, so a text that repeats for ever is printed once
per window. A text exactly one window later is printed.

Timestamps may step back. A text is suppressed only when its timestamp lies less than one window
from that of the print, on either side: slightly late copies stay hidden, and a clock that was set
back by an hour hides nothing for an hour.
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import xxhash

from heartbeat_stream.core.json_object import text_of

__all__ = ["Decision", "Held", "Window", "content_key", "decode_held", "encode_held", "judge"]

_KEPT_WHOLE_MAX = 64
"""A longer text is known by its hash, and compared."""

_WHOLE, _HASHED = b"=", b"#"


class Window(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A text that was printed, and how many copies were suppressed since.

    ``places``: the last offset of each partition of the source from which it has come since the
    print, that of the print included. One that comes from there, or from before, has come again.
    """

    content: bytes
    printed_at_ms: int
    suppressed: int = 0
    places: Mapping[int, int] = {}


Held = tuple[Window, ...]
"""What is held under one key: one window, more only where the hashes of long texts collide."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[Window, ...]).decode


class Decision(NamedTuple):
    """Whether to print, and what is to be held under the key from now on.

    ``ended`` is the window that this print ends, if it suppressed something: its line comes first.
    ``repeated``: the record itself was decided about before, and a crash has brought it again.
    """

    printed: bool
    held: Held
    ended: Window | None
    repeated: bool = False


def content_key(content: bytes) -> bytes:
    """What to partition by, and the key of the state: the text, or the hash of a long one."""
    if len(content) <= _KEPT_WHOLE_MAX:
        return _WHOLE + content
    return _HASHED + xxhash.xxh3_128_digest(content)


def judge(
    content: bytes, at_ms: int, held: Held, window_ms: int, source: tuple[int, int] | None = None
) -> Decision:
    """Decide about one text. ``held`` is what state has under its :func:`content_key`, or ``()``.

    ``source``: its partition and offset, by which a record that comes again is known as long as its
    window is open, and not counted as suppressed; None where none comes again. Raises
    :class:`~heartbeat_stream.core.reasons.Rejected` for what is no text. Windows of others that
    share the key are left as they are.
    """
    places = {} if source is None else {source[0]: source[1]}
    for place, window in enumerate(held):
        if window.content == content:
            if abs(at_ms - window.printed_at_ms) < window_ms:
                if source is not None and window.places.get(source[0], -1) >= source[1]:
                    return Decision(False, held, None, repeated=True)
                again = Window(
                    content,
                    window.printed_at_ms,
                    window.suppressed + 1,
                    {**window.places, **places},
                )
                return Decision(False, (*held[:place], again, *held[place + 1 :]), None)
            printed = (*held[:place], Window(content, at_ms, 0, places), *held[place + 1 :])
            return Decision(True, printed, window if window.suppressed else None)
    if not content.isascii():
        text_of(content)  # raises Rejected
    return Decision(True, (*held, Window(content, at_ms, 0, places)), None)


def expire(held: Held, now_ms: int, window_ms: int) -> tuple[Held, Held]:
    """Those whose window is still open at this time, and those for which it has ended.

    A print in the future of ``now_ms`` keeps its window open: only time that passes ends it.
    """
    is_open = [now_ms - window.printed_at_ms < window_ms for window in held]
    still = tuple(window for window, keep in zip(held, is_open, strict=True) if keep)
    ended = tuple(window for window, keep in zip(held, is_open, strict=True) if not keep)
    return still, ended


def encode_held(held: Held) -> bytes:
    """For a table."""
    return _encode(held)


def decode_held(data: bytes) -> Held:
    """Raises :class:`ValueError` for anything that :func:`encode_held` cannot have made."""
    try:
        return _decode(data)
    except msgspec.DecodeError as error:
        raise ValueError(f"not what is held of a text: {error}") from None
