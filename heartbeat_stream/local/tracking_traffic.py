"""Simulated traffic of analytics SDKs with known truth: for each event, how often it is sent, and
whether its copies can be told from others at all.

A device has a cache of events, and several tabs that flush it: at once, or late. All devices take
their ``_track_id`` from one sequence, so that they collide within their project, and some have
clocks so coarse, or so wrong, that their times collide too. Each event carries its number in its
properties, which its copies share: so what comes out can be counted without judging it again.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from heartbeat_stream.local.sdk_reports import FORMS, Form

__all__ = ["PROJECTS", "Flush", "TrackingTraffic"]

PROJECTS = ("shop", "新闻")
LATE_MAX_MS = 3_000

_REMARKS = ("live", "beta", None)
_LIBS = ("js", "MiniProgram", "Android")
#: How coarse clocks are, and by how much they are wrong, in milliseconds.
_CLOCK_STEPS = (1, 1, 16, 1_000)
_CLOCKS_AHEAD = (0, 0, 0, 250, -3_600_000, 86_400_000)
#: One device in so many runs a home-made client, whose events have no id.
_HOME_MADE_EVERY = 10
_CACHE_MAX = 8
_LATE_SHARE = 0.3
_TWICE_SHARE = 0.05
_AS_TEXT_SHARE = 0.1
_OTHER_SHARE = 0.08
#: Prime, so that a device has all of these ids before it has one again.
_TRACK_IDS = 1_000_003
_TRACK_ID_STEP = 7_919


class Flush(NamedTuple):
    """What one tab sends at once, and the form in which it does."""

    project: str
    remark: str | None
    form: Form
    events: list[dict[str, Any]]


class _Device:
    """A browser with a clock of its own."""

    def __init__(self, number: int, run: str, chance: random.Random) -> None:
        self.project = chance.choice(PROJECTS)
        self.remark = chance.choice(_REMARKS)
        self.distinct_id = f"{run}-{number}"
        self.lib = chance.choice(_LIBS)
        self.home_made = number % _HOME_MADE_EVERY == _HOME_MADE_EVERY - 1
        self._step_ms = 16 if self.home_made else chance.choice(_CLOCK_STEPS)
        self._ahead_ms = chance.choice(_CLOCKS_AHEAD)
        self._made = 0

    def time_ms(self, now_ms: int) -> int:
        return (now_ms + self._ahead_ms) // self._step_ms * self._step_ms

    def track_id(self) -> int:
        """The next one of the sequence that all devices share."""
        self._made += 1
        return 1 + self._made * _TRACK_ID_STEP % _TRACK_IDS


class _Cache(NamedTuple):
    """What a tab is to flush; ``late``: not when it was filled."""

    device: _Device
    events: list[dict[str, Any]]
    late: bool


@dataclass
class TrackingTraffic:
    """Traffic that is the same for the same arguments and calls, but for ``run``.

    ``signup``: whether events of the type ``track_signup`` are judged, too. ``tabs``: out of what
    it is drawn how many tabs flush a cache. ``copies`` says of each number how often it was sent;
    those in ``exempt`` have no identity. ``counts`` has what was made, by what it is.
    """

    run: str
    """Part of each distinct id: nothing of one run is a copy of something of another."""
    seed: int = 1
    devices: int = 100
    signup: bool = False
    tabs: Sequence[int] = (*(1,) * 17, 2, 2, 3)
    copies: Counter[int] = field(default_factory=Counter, init=False)
    exempt: set[int] = field(default_factory=set, init=False)
    counts: Counter[str] = field(default_factory=Counter, init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._devices = [_Device(n, self.run, self._random) for n in range(self.devices)]
        self._number = 0
        self._order = 0
        self._pending: list[tuple[int, int, _Cache]] = []

    def generate(self, now_ms: int, n: int) -> list[Flush]:
        """The next flushes, of ``n`` events in all or a few more, as they are sent at this time.

        Times must not step back. What tabs will send late is sent by a later call.
        """
        flushes: list[Flush] = []
        made = 0
        while made < n:
            if not self._pending or self._pending[0][0] > now_ms:
                self._fill_a_cache(now_ms)
                continue
            _, _, cache = heapq.heappop(self._pending)
            flush = self._flush(cache, now_ms)
            made += len(flush.events)
            flushes.append(flush)
        return flushes

    def late(self, now_ms: int) -> list[Flush]:
        """All that tabs have not sent yet, as it is sent at last."""
        flushes = [self._flush(cache, now_ms) for _, _, cache in self._pending]
        self._pending.clear()
        return flushes

    def to_be_kept(self, *, dropped: bool) -> int:
        """How many of those sent remain; ``dropped``: whether copies do not."""
        if not dropped:
            return self.copies.total()
        return sum(sent if one in self.exempt else 1 for one, sent in self.copies.items())

    def _fill_a_cache(self, now_ms: int) -> None:
        chance = self._random
        device = chance.choice(self._devices)
        events = [self._event(device, now_ms) for _ in range(chance.randint(1, _CACHE_MAX))]
        for _ in range(chance.choice(self.tabs)):
            waits_ms = chance.randint(1, LATE_MAX_MS) if chance.random() < _LATE_SHARE else 0
            self._order += 1
            cache = _Cache(device, events, late=waits_ms > 0)
            heapq.heappush(self._pending, (now_ms + waits_ms, self._order, cache))

    def _event(self, device: _Device, now_ms: int) -> dict[str, Any]:
        chance = self._random
        self._number += 1
        event: dict[str, Any] = {
            "type": "track",
            "event": chance.choice(("view", "click", "购买")),
            "distinct_id": device.distinct_id,
            "_track_id": device.track_id(),
            "time": device.time_ms(now_ms),
            "lib": {"$lib": device.lib},
            "properties": {"number": self._number},
        }
        if device.home_made:
            del event["_track_id"]
        elif chance.random() < _OTHER_SHARE:
            event |= chance.choice(
                ({"type": "profile_set"}, {"type": "track_signup"}, {"_track_id": 0})
            )
        if not self._has_identity(event):
            self.exempt.add(self._number)
        return event

    def _has_identity(self, event: dict[str, Any]) -> bool:
        judged = event["type"] == "track" or (self.signup and event["type"] == "track_signup")
        return judged and bool(event.get("_track_id"))

    def _flush(self, cache: _Cache, now_ms: int) -> Flush:
        chance, device = self._random, cache.device
        sent = [{**event, "_flush_time": device.time_ms(now_ms)} for event in cache.events]
        chance.shuffle(sent)
        if chance.random() < _TWICE_SHARE:
            sent.append(dict(sent[0]))  # within a report as well
        if chance.random() < _AS_TEXT_SHARE:
            for event in sent:
                event |= {name: str(event[name]) for name in ("_track_id", "time") if name in event}
        for event in sent:
            self._count(event["properties"]["number"], late=cache.late)
        return Flush(device.project, device.remark, chance.choice(FORMS), sent)

    def _count(self, number: int, *, late: bool) -> None:
        self.copies[number] += 1
        if number in self.exempt:
            self.counts["without identity"] += 1
        elif self.copies[number] == 1:
            self.counts["first"] += 1
        else:
            self.counts["late copy" if late else "copy"] += 1
