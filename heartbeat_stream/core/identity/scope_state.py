"""What is remembered of the ids of one scope: where its sequence is, and in which epoch."""

from typing import Self

import msgspec

__all__ = ["Epoch", "Fall", "ScopeState"]


class Epoch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One run of the sequence, from one (re)start to the next.

    ``name`` is the number of a detected epoch, or the text of the epoch's field. ``newest_id`` is
    the greatest id. ``start_us`` and ``newest_us`` are the least and the greatest exchange time of
    its messages, None where none had one.
    """

    name: int | str
    newest_id: int
    start_us: int | None = None
    newest_us: int | None = None


class Fall(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The current epoch began with an id that fell, and is not confirmed yet.

    ``first_id`` is the least id since, ``confirmations`` counts the messages in which ids rise.
    """

    first_id: int
    confirmations: int


class ScopeState(msgspec.Struct, frozen=True, array_like=True):
    """The current epoch, and older ones, the newest first, a few.

    A value: judging a message returns another one and leaves this as it is. It has to be held for
    the first layer's time to live after its last change: names of epochs would be used again
    otherwise, while ids are held under them.
    """

    current: Epoch
    older: tuple[Epoch, ...] = ()
    fall: Fall | None = None
    next_number: int = 1
    """What the next detected epoch is called: no name is used twice in a scope."""

    def to_bytes(self) -> bytes:
        """For a table; about 30 bytes, and as many for each older epoch."""
        return _encode(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Raises :class:`ValueError` for anything that :meth:`to_bytes` cannot have made."""
        try:
            return _decode(data)  # type: ignore[return-value]
        except msgspec.DecodeError as error:
            raise ValueError(f"not the state of a scope: {error}") from None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(ScopeState).decode
