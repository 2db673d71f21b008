"""Seen events in the memory of one process."""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from heartbeat_stream.collector.seen.store import Answer

__all__ = ["ENTRY_BYTES", "MemoryStore"]

#: What a key takes, measured: the dictionary, its links, the entry and its parts.
ENTRY_BYTES: Final = 320
_CLEANED_AT_ONCE: Final = 1_000


class _Held(NamedTuple):
    owner: bytes | None  #: None once it is seen.
    expires_ms: int


class MemoryStore:
    """Keys in the order in which they were active last. Never waits, never fails."""

    def __init__(
        self, *, claim_ms: int, window_ms: int, most: int, now_ms: Callable[[], int]
    ) -> None:
        """``most``: keys at most; beyond it those that were active longest ago go."""
        self._claim_ms = claim_ms
        self._window_ms = window_ms
        self._most = most
        self._now_ms = now_ms
        self._held: OrderedDict[bytes, _Held] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    async def start(self) -> None:
        """Nothing is needed."""

    async def claim(self, wanted: Mapping[bytes, bytes]) -> list[Answer]:
        now = self._now_ms()
        answers = [self._claim(key, owner, now) for key, owner in wanted.items()]
        self._make_room(2 * len(wanted))
        return answers

    def _claim(self, key: bytes, owner: bytes, now: int) -> Answer:
        held = self._held.get(key)
        if held is not None and held.expires_ms > now:
            return Answer.SEEN if held.owner is None else Answer.PENDING
        self._put(key, _Held(owner, now + self._claim_ms))
        return Answer.CLAIMED

    async def confirm(self, keys: Sequence[bytes]) -> None:
        seen = _Held(None, self._now_ms() + self._window_ms)
        for key in keys:
            self._put(key, seen)
        self._make_room(2 * len(keys))

    def _put(self, key: bytes, held: _Held) -> None:
        self._held[key] = held
        self._held.move_to_end(key)

    async def release(self, keys: Sequence[bytes], owner: bytes) -> None:
        for key in keys:
            held = self._held.get(key)
            if held is not None and held.owner == owner:
                del self._held[key]

    def _make_room(self, at_most: int) -> None:
        """Twice as many may go as came, so that a bound that was lowered is reached in time."""
        for _ in range(at_most):
            if len(self._held) <= self._most:
                return
            self._held.popitem(last=False)

    async def clean(self) -> int:
        now = self._now_ms()
        for count in range(_CLEANED_AT_ONCE):
            oldest = next(iter(self._held), None)
            if oldest is None or self._held[oldest].expires_ms > now:
                return count
            del self._held[oldest]
        return _CLEANED_AT_ONCE

    async def stop(self) -> None:
        """What was seen is forgotten with the process."""
