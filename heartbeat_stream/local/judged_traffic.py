"""Traffic of the jobs that judge messages: sent at a rate, and compared with what came of it.

What each record is in truth is known when it is made. So it can be said of what a worker puts out
whether it took something new for a duplicate (*false*), or a duplicate for new (*missed*).
"""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from heartbeat_stream.local.market_traffic import Kind, MarketTraffic
from heartbeat_stream.local.message_traffic import MessageTraffic
from heartbeat_stream.local.record_sender import Record, open_sender
from heartbeat_stream.local.simulate import records_due
from heartbeat_stream.settings import Settings
from heartbeat_stream.streaming.security import kafka_auth

__all__ = ["FEEDS", "Feed", "MarketFeed", "MessageFeed", "Truth", "send_feed"]

_TICK_S = 0.02
_SLICE = 2000


class Truth(NamedTuple):
    """How what was put out differs from what should have been."""

    false: int
    """New ones that were not put out."""
    missed: int
    """Duplicates that were."""
    repeated: int
    """Records that were put out again, as after a crash: the same record of the source."""


class Feed(Protocol):
    """The traffic of one job."""

    counts: Counter[str]
    """What was made, by what it is."""

    def topics(self, settings: Settings) -> tuple[str, str]:
        """Where to send it, and where what is new comes out."""

    def generate(self, now_ms: int, n: int) -> list[tuple[Record, int]]:
        """The next records with their timestamps."""

    def take(self, value: bytes, timestamp_ms: int, place: str) -> None:
        """A record has come out, which stood at this place of the source."""

    @property
    def expected(self) -> int:
        """How many should come out."""

    def truth(self) -> Truth:
        """What became of all that was made, as far as it came out."""


class _Taken:
    """What has come out: of each name how often, by the records of the source that it was."""

    def __init__(self) -> None:
        self.places: dict[Any, set[str]] = {}
        self.repeated = 0

    def take(self, name: Any, place: str) -> None:
        places = self.places.setdefault(name, set())
        self.repeated += place in places
        places.add(place)

    def missed(self, expected: set[Any]) -> int:
        """Beyond one for each that was expected."""
        return sum(len(places) - (name in expected) for name, places in self.places.items())


class MarketFeed:
    """Market messages. Each has its number, which its duplicates share."""

    def __init__(self, seed: int) -> None:
        self._traffic = MarketTraffic(seed=seed)
        self._taken = _Taken()
        self._new: set[Any] = set()
        self.counts: Counter[str] = Counter()

    def topics(self, settings: Settings) -> tuple[str, str]:
        return settings.market_topic, settings.market_unique_topic

    def generate(self, now_ms: int, n: int) -> list[tuple[Record, int]]:
        made = self._traffic.generate(now_ms, n)
        for sent in made:
            self.counts[sent.truth.kind.value] += 1
            if sent.truth.kind is Kind.NEW:
                self._new.add(sent.truth.number)
        return [(sent.record, now_ms) for sent in made]

    def take(self, value: bytes, timestamp_ms: int, place: str) -> None:
        self._taken.take(json.loads(value)["n"], place)

    @property
    def expected(self) -> int:
        return len(self._new)

    def truth(self) -> Truth:
        taken = self._taken
        false = len(self._new - set(taken.places))
        return Truth(false, taken.missed(self._new), taken.repeated)


class MessageFeed:
    """Texts. One print is a text with its time."""

    def __init__(self, seed: int, window_ms: int = 10_000) -> None:
        self._traffic = MessageTraffic(seed=seed, window_ms=window_ms)
        self._taken = _Taken()
        self._prints: Counter[tuple[bytes, int]] = Counter()
        self.counts: Counter[str] = Counter()

    def topics(self, settings: Settings) -> tuple[str, str]:
        return settings.messages_topic, settings.messages_output_topic

    def generate(self, now_ms: int, n: int) -> list[tuple[Record, int]]:
        made = self._traffic.generate(now_ms, n)
        for sent in made:
            self.counts["to be printed" if sent.printed else "to be suppressed"] += 1
            if sent.printed:
                self._prints[sent.record[1], sent.at_ms] += 1
        return [(sent.record, sent.at_ms) for sent in made]

    def take(self, value: bytes, timestamp_ms: int, place: str) -> None:
        self._taken.take((value, timestamp_ms), place)

    @property
    def expected(self) -> int:
        return self._prints.total()

    def truth(self) -> Truth:
        taken, prints = self._taken, set(self._prints)
        return Truth(len(prints - set(taken.places)), taken.missed(prints), taken.repeated)


def _messages(seed: int, settings: Settings) -> Feed:
    return MessageFeed(seed, settings.messages_window_ms)


#: By the name of the job.
FEEDS: dict[str, Callable[[int, Settings], Feed]] = {
    "market": lambda seed, settings: MarketFeed(seed),
    "messages": _messages,
}


async def send_feed(
    settings: Settings,
    feed: Feed,
    *,
    seconds: float,
    rate: float,
    on_progress: Callable[[int, float], None],
    stop: asyncio.Event,
) -> int:
    """Send ``rate`` records a second for so long; how many, all acknowledged.

    ``on_progress`` is told how many were sent, and after how many seconds. Raises SendError where
    the broker or the topic is missing or refuses.
    """
    topic, _ = feed.topics(settings)
    total, sent, started = round(rate * seconds), 0, time.monotonic()
    async with open_sender(",".join(settings.brokers), topic, kafka_auth(settings)) as sender:
        while sent < total and not stop.is_set():
            elapsed = time.monotonic() - started
            due = min(records_due(elapsed, rate, total) - sent, _SLICE)
            if due > 0:
                records: Sequence[tuple[Record, int]] = feed.generate(_now_ms(), due)
                await sender.send_each(records)
                sent += due
            on_progress(sent, elapsed)
            await asyncio.sleep(_TICK_S)
        await sender.flush()
    return sent


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
