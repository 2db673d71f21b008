"""An event of an SDK."""

from __future__ import annotations

from typing import Any

__all__ = ["event"]

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
