"""Events of SDKs, with known truth."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from heartbeat_stream.local.sdk_reports import FORMS, Form

__all__ = ["SdkTraffic", "event"]

TIME_MS = 1_700_000_000_000


def event(number: int, **changed: Any) -> dict[str, Any]:
    """An event of its own for each number; fields may be changed."""
    return {
        "type": "track",
        "event": "view",
        "distinct_id": f"user-{number % 7}",
        "_track_id": 100_000 + number,
        "time": TIME_MS + number // 3,
        "_flush_time": TIME_MS + 10_000,
        "lib": {"$lib": "js"},
        "properties": {"number": number},
        **changed,
    }


@dataclass
class SdkTraffic:
    """Reports of several tabs that flush the same cache: each event in one to three of them.

    ``copies`` says how often each track id is sent; ``plain`` how many events without identity.
    """

    seed: int
    events: int = 300
    copies: Counter[int] = field(default_factory=Counter)
    plain: int = 0

    def reports(self) -> list[tuple[Form, list[dict[str, Any]]]]:
        """Each with the form in which it is to be sent, in a random order."""
        chance = random.Random(self.seed)
        reports: list[tuple[Form, list[dict[str, Any]]]] = []
        for first in range(0, self.events, 10):
            cache = [event(number) for number in range(first, min(first + 10, self.events))]
            tabs = chance.choice((1, 1, 2, 3))
            for tab in range(tabs):
                flushed = [{**one, "_flush_time": TIME_MS + 10_000 + tab} for one in cache]
                chance.shuffle(flushed)
                if chance.random() < 0.2:
                    flushed.append(flushed[0])  # within a report as well
                self.copies.update(one["_track_id"] for one in flushed)
                if chance.random() < 0.3:
                    flushed.append(event(first, _track_id=0))
                    flushed.append(event(first, type="profile_set"))
                    self.plain += 2
                reports.append((chance.choice(FORMS), flushed))
        chance.shuffle(reports)
        return reports
