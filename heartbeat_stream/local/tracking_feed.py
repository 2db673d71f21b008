"""Tracking events on their way to Kafka or to a collector, and what their table holds of them."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from contextlib import AbstractAsyncContextManager
from typing import Any

from heartbeat_stream.core.identity.joining import join
from heartbeat_stream.local.judged_topic import RecordSource, open_outlet
from heartbeat_stream.local.judged_traffic import Outlet, Truth, Watcher
from heartbeat_stream.local.record_sender import Record
from heartbeat_stream.local.report_sender import open_door
from heartbeat_stream.local.tracking_table import watching_table
from heartbeat_stream.local.tracking_traffic import Flush, TrackingTraffic
from heartbeat_stream.settings import Settings

__all__ = ["StoredTruth", "TrackingFeed"]


class StoredTruth:
    """What is stored of some traffic, held against what should be.

    Of an event that can be told from others one copy is new, and the rest is marked or, by policy,
    not stored. Of all other events every copy is new.
    """

    def __init__(self, traffic: TrackingTraffic, policy: str) -> None:
        self._traffic = traffic
        self._keeps_copies = policy == "mark"
        self._new: Counter[int] = Counter()
        self._marked: Counter[int] = Counter()
        self._places: set[str] = set()
        self._repeated = 0

    def take(self, number: int, place: str, *, marked: bool) -> None:
        """A row of the event with this number, which stood at this place of the source."""
        self._repeated += place in self._places
        self._places.add(place)
        # Where copies are dropped, a mark makes none of them right.
        (self._marked if marked and self._keeps_copies else self._new)[number] += 1

    @property
    def expected(self) -> int:
        """How many rows there should be."""
        return self._traffic.to_be_kept(dropped=not self._keeps_copies)

    def truth(self) -> Truth:
        false = missed = lost = 0
        for number, sent in self._traffic.copies.items():
            wanted = sent if number in self._traffic.exempt else 1
            new, marked = self._new[number], self._marked[number]
            false += max(0, wanted - new)
            missed += max(0, new - wanted)
            lost += max(0, (sent if self._keeps_copies else wanted) - new - marked)
        return Truth(false, missed, self._repeated, lost)


class TrackingFeed(RecordSource):
    """Events, straight into Kafka, or as reports to the collector at ``url``."""

    def __init__(self, seed: int, settings: Settings, url: str | None = None) -> None:
        run = uuid.uuid4().hex[:12]
        self._traffic = TrackingTraffic(run, seed, signup=settings.tracking_signup)
        self._stored = StoredTruth(self._traffic, settings.tracking_policy)
        self._url = url
        self.counts = self._traffic.counts

    def outlet(self, settings: Settings) -> AbstractAsyncContextManager[Outlet]:
        if self._url is not None:
            return open_door(self._url, self._traffic.generate)
        return open_outlet(settings, settings.tracking_topic, self)

    def generate(self, now_ms: int, n: int) -> list[tuple[Record, int]]:
        flushes = self._traffic.generate(now_ms, n)
        return [(record, now_ms) for flush in flushes for record in records_of(flush)]

    def watching(self, settings: Settings) -> AbstractAsyncContextManager[Watcher]:
        return watching_table(settings, self._traffic.run, self._stored.take)

    @property
    def expected(self) -> int:
        return self._stored.expected

    def truth(self) -> Truth:
        return self._stored.truth()


def records_of(flush: Flush) -> list[Record]:
    """Its events as records of a source that knows no headers: the project stands in each."""
    return [_record(flush, event) for event in flush.events]


def _record(flush: Flush, event: dict[str, Any]) -> Record:
    whole = {**event, "project": flush.project, "remark": flush.remark}
    value = json.dumps(whole, ensure_ascii=False).encode()
    return join((flush.project, event["distinct_id"])), value
