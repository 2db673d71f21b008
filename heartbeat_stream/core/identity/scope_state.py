"""What is remembered of the ids of one scope: where its sequence is, and in which epoch."""

from typing import Self

import msgspec

__all__ = ["Candidate", "Epoch", "ScopeState"]


class Epoch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One run of the sequence, from one (re)start to the next.

    ``name`` is the number of a detected epoch, or the text of the epoch's field; ``start_us`` and
    ``newest_us`` bound the exchange times of its messages (None where none had one), and
    ``newest_id`` is the greatest id.
    """

    name: int | str
    newest_id: int
    start_us: int | None = None
    newest_us: int | None = None


class Candidate(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A fall of the sequence that the following messages may confirm as a new epoch."""

    epoch: Epoch
    first_id: int
    confirmations: int


class ScopeState(msgspec.Struct, frozen=True, array_like=True):
    """The current epoch, older ones (the newest first, a few), and perhaps a candidate.

    A value: judging a message returns another one and leaves this as it is.
    """

    current: Epoch
    older: tuple[Epoch, ...] = ()
    candidate: Candidate | None = None
    next_number: int = 1
    """What the next candidate is called: a name is never used twice in a scope."""

    def to_bytes(self) -> bytes:
        """For a table; about 50 bytes."""
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
