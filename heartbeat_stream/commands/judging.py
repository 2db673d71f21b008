"""What `judge` says about each line: a worker's verdicts, without a worker."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from heartbeat_stream.core import messages
from heartbeat_stream.core.identity.continuity import ContinuityEvent, Oddity
from heartbeat_stream.core.identity.in_memory import InMemory
from heartbeat_stream.core.identity.rules import JobRules
from heartbeat_stream.core.identity.seen import First
from heartbeat_stream.core.reasons import Reason, Rejected

__all__ = ["Judging", "MarketJudging", "MessageJudging"]


class Judging(Protocol):
    """Judges lines, one after the other."""

    def take(self, number: int, line: bytes) -> dict[str, Any] | None:
        """What to print about a line, as JSON; None for one that says nothing.

        Raises Rejected for a line that would become a dead letter.
        """

    def summary(self) -> Iterator[str]:
        """What was decided about all of them."""


class MarketJudging:
    """By layers. Lifetimes are measured by the exchange's times, as far as these have come."""

    def __init__(self, rules: JobRules, source: str) -> None:
        self._memory = InMemory(rules)
        self._source = source
        self._now_ms = 0
        self._new = 0
        self._oddities = Counter[Oddity]()

    def take(self, number: int, line: bytes) -> dict[str, Any] | None:
        if not line.strip():
            return None
        message = self._memory.judge.read(line)
        time_us = self._memory.judge.time_us(message) or 0
        self._now_ms = max(self._now_ms, time_us // 1_000)
        here = First(self._now_ms, self._source, 0, number)
        verdict = self._memory.take_read(message, here)
        self._oddities.update(event.oddity for event in verdict.events)
        said: dict[str, Any] = {"line": number, "channel": message.channel}
        if verdict.first is None:
            self._new += 1
            said |= {"verdict": "new"}
        else:
            first = verdict.first.offset
            said |= {"verdict": "duplicate", "layer": verdict.layer, "first_line": first}
        said["reason"] = self._memory.judge.explain(message, verdict)
        if verdict.events:
            said["continuity"] = [_event(event) for event in verdict.events]
        return said

    def summary(self) -> Iterator[str]:
        yield f"new          {self._new:,}"
        for layer, tally in self._memory.tally.by_layer.items():
            yield (
                f"{layer:<12} {tally.hits:,} duplicates in {tally.checks:,} checks, "
                f"{tally.abstentions:,} abstentions"
            )
        if self._oddities:
            found = [f"{count:,} {oddity}" for oddity, count in sorted(self._oddities.items())]
            yield f"continuity   {', '.join(found)}"


class MessageJudging:
    """By the window. A line ``{"at": ms, "text": "..."}`` brings its time along, as a record does;
    any other line is a text of this moment.
    """

    def __init__(self, window_ms: int, now_ms: Callable[[], int]) -> None:
        self._window_ms = window_ms
        self._now_ms = now_ms
        self._held: dict[bytes, messages.Held] = {}
        self._counts = Counter[str]()

    def take(self, number: int, line: bytes) -> dict[str, Any] | None:
        text, at_ms = self._stamped(line)
        key = messages.content_key(text)
        decision = messages.judge(text, at_ms, self._held.get(key, ()), self._window_ms)
        self._held[key] = decision.held
        verdict = "printed" if decision.printed else "suppressed"
        self._counts[verdict] += 1
        printed_at_ms = next(each.printed_at_ms for each in decision.held if each.content == text)
        said: dict[str, Any] = {"line": number, "verdict": verdict, "at": at_ms}
        if not decision.printed:
            said["reason"] = f"printed {abs(at_ms - printed_at_ms)} ms away"
        if decision.ended is not None:
            said["suppressed_before"] = decision.ended.suppressed
        return said

    def summary(self) -> Iterator[str]:
        for verdict in ("printed", "suppressed"):
            yield f"{verdict:<12} {self._counts[verdict]:,}"

    def _stamped(self, line: bytes) -> tuple[bytes, int]:
        if line.startswith(b"{"):
            try:
                given = json.loads(line)
            except (ValueError, RecursionError):
                given = None
            if isinstance(given, dict) and given.keys() == {"at", "text"}:
                return _text(given["text"]), _time(given["at"])
        return line, self._now_ms()


def _event(event: ContinuityEvent) -> dict[str, Any]:
    about = {"oddity": event.oddity, "id": event.id, "newest_id": event.newest_id}
    if event.missing:
        about["missing"] = event.missing
    return about | {"epoch": event.epoch}


def _text(value: object) -> bytes:
    try:
        if isinstance(value, str):
            return value.encode()
    except UnicodeEncodeError:
        pass
    raise Rejected(Reason.BAD_TEXT, '"text" should be a string')


def _time(value: object) -> int:
    if type(value) is not int:
        raise Rejected(Reason.BAD_TIME, '"at" should be whole milliseconds')
    return value
