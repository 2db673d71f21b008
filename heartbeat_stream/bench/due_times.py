"""When a room was due by the rule, and how much later its row was in the database.

A room is due at ``max(arrival of the first heartbeat that is newer than what was written + window,
last acknowledged write + cooldown)``. All times are milliseconds of this machine's clock.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["Latencies", "Rule", "Write", "latencies"]


class Rule(NamedTuple):
    """The settings that decide, in milliseconds."""

    window_ms: int
    cooldown_ms: int


class Write(NamedTuple):
    """One write of a room.

    ``acknowledged_ms`` is when the worker knew of it, ``committed_ms`` when the database says that
    it was committed.
    """

    ts_ms: int
    acknowledged_ms: int
    committed_ms: float


@dataclass
class Latencies:
    """Milliseconds from due to committed, of all writes but each room's first.

    A first one may be due earlier than its window says, when the buffer is full, so it tells
    nothing: ``first`` only counts them. ``by_window`` counts the writes that were due by their
    window rather than their cooldown. ``missing`` holds, of every room that was due at the end and
    not written, for how long it had been.
    """

    values: list[float] = field(default_factory=list)
    missing: list[float] = field(default_factory=list)
    first: int = 0
    by_window: int = 0


def latencies(
    rule: Rule,
    arrivals: Mapping[int, Sequence[int]],
    writes: Mapping[int, Sequence[Write]],
    end_ms: int,
) -> Latencies:
    """Judge every write of every room.

    ``arrivals``: of each room, when its heartbeats came, ascending; it is also their ts_ms.
    ``writes``: of each room, in order. ``end_ms``: until when the worker was to write.
    """
    result = Latencies()
    for room, times in arrivals.items():
        done = writes.get(room, ())
        if not done:
            _note_missing(result, times[0] + rule.window_ms, end_ms)
            continue
        result.first += 1
        for index, before in enumerate(done):
            newer = bisect_right(times, before.ts_ms)
            if newer == len(times):
                break
            by_window = times[newer] + rule.window_ms
            by_cooldown = before.acknowledged_ms + rule.cooldown_ms
            due = max(by_window, by_cooldown)
            if index + 1 == len(done):
                _note_missing(result, due, end_ms)
                break
            result.by_window += by_window > by_cooldown
            result.values.append(done[index + 1].committed_ms - due)
    return result


def _note_missing(result: Latencies, due_ms: int, end_ms: int) -> None:
    if due_ms < end_ms:
        result.missing.append(end_ms - due_ms)
