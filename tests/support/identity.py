"""Messages for the layers, and a job that judges them in memory."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from heartbeat_stream.core.identity.continuity import Oddity
from heartbeat_stream.core.identity.in_memory import InMemory
from heartbeat_stream.core.identity.layers import Verdict
from heartbeat_stream.core.identity.rules import (
    BusinessKeyRule,
    ChannelRules,
    FingerprintRule,
    JobRules,
    MessageIdRule,
    TimeRule,
    TimeUnit,
)
from heartbeat_stream.core.identity.seen import First
from heartbeat_stream.core.identity.tally import Tally

__all__ = ["SCOPE", "TIME", "TTL", "Job", "ids", "key", "market", "message", "odd"]

SCOPE = ("exchange", "channel", "symbol")
TIME = TimeRule("ts", TimeUnit.US)
TTL = 60_000

T0 = 1_700_000_000_000_000


def ids(**changes: Any) -> MessageIdRule:
    """A rule for the first layer."""
    return replace(MessageIdRule("seq", SCOPE, TTL), **changes)


def key(*more: str, **changes: Any) -> BusinessKeyRule:
    """A rule for the second layer: the scope, and these fields."""
    return replace(BusinessKeyRule((*SCOPE, *more), TTL), **changes)


def fingerprint(**changes: Any) -> FingerprintRule:
    """A rule for the third layer."""
    return replace(FingerprintRule(TTL, exclude=("recv_ts",)), **changes)


def market(
    message_id: MessageIdRule | None = None,
    business_key: BusinessKeyRule | None = None,
    fingerprint: FingerprintRule | None = None,
    time: TimeRule | None = TIME,
) -> JobRules:
    """A job with one channel, depth, and these layers."""
    channel = ChannelRules(time, message_id, business_key, fingerprint)
    return JobRules("channel", SCOPE, {"depth": channel})


def message(**fields: Any) -> dict[str, Any]:
    """A change of an order book; a field given as None is null, one given as ``...`` left out."""
    whole = {"exchange": "binance", "symbol": "BTCUSDT", "channel": "depth", "ts": T0, "seq": 1}
    whole |= {"bids": [["42000.5", "1.5"]], "asks": []} | fields
    return {name: value for name, value in whole.items() if value is not ...}


class Job:
    """Judges dicts or JSON texts, one after the other, each at the offset of its number."""

    def __init__(self, rules: JobRules) -> None:
        self.memory = InMemory(rules)
        self.count = 0

    @property
    def tally(self) -> Tally:
        return self.memory.tally

    def take(self, given: dict[str, Any] | str | bytes, at_ms: int = 0) -> Verdict:
        text = json.dumps(given) if isinstance(given, dict) else given
        value = text.encode() if isinstance(text, str) else text
        here = First(at_ms, "market", 0, self.count)
        self.count += 1
        return self.memory.take(value, here)[1]

    def all(self, *given: dict[str, Any] | str | bytes) -> list[str]:
        """``new``, or the layer that recognised it, of each."""
        return [verdict.layer or "new" for verdict in map(self.take, given)]


def odd(verdict: Verdict) -> list[Oddity]:
    """What is odd about the sequence."""
    return [event.oddity for event in verdict.events]
