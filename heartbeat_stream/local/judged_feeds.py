"""The traffic of each job that judges: what is sent, and what should come of it."""

import json
from collections import Counter
from typing import Any

from heartbeat_stream.local.judged_topic import TopicFeed
from heartbeat_stream.local.judged_traffic import Feed, Truth
from heartbeat_stream.local.market_traffic import Kind, MarketTraffic
from heartbeat_stream.local.message_traffic import MessageTraffic
from heartbeat_stream.local.record_sender import Record
from heartbeat_stream.local.tracking_feed import TrackingFeed
from heartbeat_stream.settings import Settings

__all__ = ["JUDGED_JOBS", "MarketFeed", "MessageFeed", "make_feed"]

JUDGED_JOBS = ("market", "messages", "tracking")


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


class MarketFeed(TopicFeed):
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


class MessageFeed(TopicFeed):
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


def make_feed(job: str, seed: int, settings: Settings, url: str | None = None) -> Feed:
    """The traffic of one of ``JUDGED_JOBS``. ``url``: of a collector, for tracking events alone."""
    if job == "market":
        return MarketFeed(seed)
    if job == "messages":
        return MessageFeed(seed, settings.messages_window_ms)
    return TrackingFeed(seed, settings, url)
