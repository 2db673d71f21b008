"""What the self-test reports, and which rows that must lead to.

All events belong to a few users of a project of the test's own, and carry the run in their distinct
id. Users share ids and times, as devices with coarse clocks do. The single reports come last, one
of each user: Kafka keeps a user's order, so that when their rows are there all others are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from heartbeat_stream.collector.sdk_forms import Form

__all__ = ["PROJECT", "REMARK", "Kind", "Report", "Rows", "make_reports", "users_of", "wanted_rows"]

PROJECT = "heartbeat-stream-selftest"
REMARK = "selftest"

_USERS = 8
_BATCH = 50
_REPEATED = 20
_CLOCK_MS = 16

Event = dict[str, Any]


class Kind(StrEnum):
    """In the order in which they are sent."""

    BATCH = "batch"
    ZIPPED = "compressed"
    REPEATED = "repeated"
    EXEMPT = "exempt"  #: Sent twice, but without an identity: both stay.
    SINGLE = "single"


class Report(NamedTuple):
    """One report: all its events are of one kind."""

    kind: Kind
    form: Form
    events: Sequence[Event]


class Rows(NamedTuple):
    """How many rows, and how many of these have a remark that begins with ``du-``."""

    stored: int
    marked: int


def users_of(run: str) -> list[str]:
    """The distinct ids of a run."""
    return [f"{run}-{number}" for number in range(_USERS)]


def make_reports(run: str, now_ms: int) -> list[Report]:
    """All reports of a run, in the order in which they are to be sent."""
    made = _Events(users_of(run), now_ms)
    return [
        *(Report(Kind.BATCH, form, made.take(Kind.BATCH, _BATCH)) for form in ("form", "json")),
        *(Report(Kind.ZIPPED, form, made.take(Kind.ZIPPED, _BATCH)) for form in ("gzip", "gif")),
        *_tabs(made.take(Kind.REPEATED, _REPEATED)),
        *_without_identity(made),
        *(Report(Kind.SINGLE, "get", [one]) for one in made.take(Kind.SINGLE, _USERS)),
    ]


class _Events:
    """Makes events, each another one, of all users in turn."""

    def __init__(self, users: Sequence[str], now_ms: int) -> None:
        self._users = users
        self._now_ms = now_ms
        self._made = 0

    def take(self, kind: Kind, number: int) -> list[Event]:
        return [self._make(kind) for _ in range(number)]

    def _make(self, kind: Kind) -> Event:
        turn, user = divmod(self._made, len(self._users))
        self._made += 1
        return {
            "type": "track",
            "event": event_name(kind),
            "distinct_id": self._users[user],
            "_track_id": 100_000_000 + turn,
            "time": self._now_ms - turn * _CLOCK_MS,
            "_flush_time": self._now_ms,
            "lib": {"$lib": "selftest"},
            "properties": {"文字": "é", "number": 1.5},
        }


def event_name(kind: Kind) -> str:
    """What the event of a kind is called: by that name rows are counted."""
    return f"selftest {kind}"


def _tabs(cache: Sequence[Event]) -> Iterator[Report]:
    """Tabs flush the same cache, in another order and at another time; the last has one twice."""
    flushes = (
        ("form", list(cache)),
        ("gzip", list(reversed(cache))),
        ("json", [*cache, cache[0]]),
    )
    for tab, (form, events) in enumerate(flushes):
        flushed = [{**one, "_flush_time": one["_flush_time"] + tab} for one in events]
        yield Report(Kind.REPEATED, form, flushed)
    yield Report(Kind.REPEATED, "get", [cache[-1]])


def _without_identity(made: _Events) -> Iterator[Report]:
    events: list[Event] = [
        *({**one, "_track_id": 0} for one in made.take(Kind.EXEMPT, _USERS)),
        *({**one, "type": "profile_set"} for one in made.take(Kind.EXEMPT, _USERS)),
    ]
    for form in ("form", "json"):
        yield Report(Kind.EXEMPT, form, events)


def wanted_rows(reports: Sequence[Report], policy: str) -> Mapping[Kind, Rows]:
    """The rows that must be there, where copies are marked or dropped by the policy."""
    found = {}
    for kind in Kind:
        sent = [event for report in reports if report.kind is kind for event in report.events]
        first = len(sent) if kind is Kind.EXEMPT else len(Counter(map(_identity, sent)))
        copies = len(sent) - first
        found[kind] = Rows(first, 0) if policy == "drop" else Rows(first + copies, copies)
    return found


def _identity(event: Event) -> tuple[str, int, int]:
    return event["distinct_id"], event["_track_id"], event["time"]
