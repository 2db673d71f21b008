"""What the collector asks of a store of seen events.

A key is free, claimed or seen. Who has claimed a key is the one that brings its event to Kafka; a
claim expires soon by itself, and says nothing about the event: it suppresses no copy. Only what
Kafka has acknowledged is seen, for the length of the window since it was told so last.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Protocol

__all__ = ["Answer", "SeenStore", "StoreFailed"]


class StoreFailed(Exception):
    """The store is away, or refuses. The message says so, and holds no password."""


class Answer(Enum):
    """What became of a key that was to be claimed."""

    CLAIMED = 1  #: It was free, and is now claimed by whoever asked.
    SEEN = 2  #: Kafka has the event.
    PENDING = 3  #: Somebody else has claimed it: ask again, until it is seen, or free.


class SeenStore(Protocol):
    """Everything may raise :class:`StoreFailed`; whoever calls sets
    a limit of time, and cancels what takes longer."""

    async def start(self) -> None:
        """Connect, and create what is missing. May be called again."""

    async def claim(self, wanted: Mapping[bytes, bytes]) -> list[Answer]:
        """Claim each of these keys that is free for its owner, in one step per key; the answers in
        order."""

    async def confirm(self, keys: Sequence[bytes]) -> None:
        """These are seen from now on, whatever they were. Keys are unique within a call."""

    async def release(self, keys: Sequence[bytes], owner: bytes) -> None:
        """Give back those that this owner has claimed. Others stay as they are."""

    async def clean(self) -> int:
        """One bounded step of cleaning; how many keys went. Again and again, until there is
        nothing to do: never all at once."""

    async def stop(self) -> None:
        """Let go of connections."""
