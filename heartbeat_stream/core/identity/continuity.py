"""What can be odd about the sequence of a scope's ids."""

from enum import StrEnum

import msgspec


class Oddity(StrEnum):
    """What a continuity event tells. The values are public: they go to ``market.continuity``."""

    GAP = "gap"
    """Ids are missing between the newest one and this one, and the rules forbid that."""
    REPEAT = "repeat"
    """An id that was seen already."""
    OUT_OF_ORDER = "out-of-order"
    """An id smaller than the newest one that was not seen yet."""
    RESET = "reset"
    """The sequence has started again: a new epoch."""


class ContinuityEvent(msgspec.Struct, frozen=True, gc=False):
    """``id`` came when ``newest_id`` was the greatest of its epoch so far.

    Of a gap, ``missing`` is how many ids lie between. Of a reset, ``newest_id`` is that of the
    epoch which has ended, and ``id`` the first one of the new epoch.
    """

    oddity: Oddity
    epoch: int | str
    id: int
    newest_id: int
    missing: int = 0
