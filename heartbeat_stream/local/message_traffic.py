"""Simulated texts with known truth: for each, whether the message filter prints it."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from heartbeat_stream.core.messages import content_key
from heartbeat_stream.local.record_sender import Record

__all__ = ["MessageTraffic", "SentText"]

_RECENT = 500
_LATE_MAX_MS = 50
_TEXTS: tuple[Callable[[int], str], ...] = (
    lambda number: f"order {number} accepted",
    lambda number: f"房间 {number} 离线",
    lambda number: f"sensor {number}: " + "temperature above limit; " * 12,
    lambda number: f'{{"event": {number}, "text": "quoted \\"here\\""}}',
)


class SentText(NamedTuple):
    """A record, its timestamp, and whether it is printed.

    The key is made of the text, so that records of one text stay in their order.
    """

    record: Record
    at_ms: int
    printed: bool


@dataclass
class MessageTraffic:
    """Traffic that is the same for the same arguments and calls.

    ``repeat_share`` of the texts were sent before, within the window or not; ``hot`` texts come
    again and again. Some carry a timestamp that is a little late.
    """

    seed: int = 1
    window_ms: int = 10_000
    repeat_share: float = 0.4
    hot: int = 5
    hot_share: float = 0.2
    counts: Counter[str] = field(default_factory=Counter, init=False)
    """How many are ``printed`` and ``suppressed``."""

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._recent: list[str] = []
        self._number = 0
        self._printed_at: dict[str, int] = {}

    def generate(self, now_ms: int, n: int) -> list[SentText]:
        """The next ``n`` texts, as they are sent at this time; times must not step back."""
        return [self._next(now_ms) for _ in range(n)]

    def _next(self, now_ms: int) -> SentText:
        text = self._text()
        at_ms = now_ms - int(self._random.random() ** 4 * _LATE_MAX_MS)
        last = self._printed_at.get(text)
        printed = last is None or abs(at_ms - last) >= self.window_ms
        if printed:
            self._printed_at[text] = at_ms
        self.counts["printed" if printed else "suppressed"] += 1
        content = text.encode()
        return SentText((content_key(content), content), at_ms, printed)

    def _text(self) -> str:
        share = self._random.random()
        if share < self.hot_share:
            return f"still alive {self._random.randrange(self.hot)}"
        if share < self.hot_share + self.repeat_share and self._recent:
            return self._random.choice(self._recent)
        self._number += 1
        text = _TEXTS[self._number % len(_TEXTS)](self._number)
        if len(self._recent) < _RECENT:
            self._recent.append(text)
        else:
            self._recent[self._random.randrange(_RECENT)] = text
        return text
