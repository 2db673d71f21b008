"""Simulated market messages with known truth: for each, whether it is new, and of which other one
it is a duplicate, and in which way.

The built-in rules of the job ``market`` find all of it. Each original carries a field ``n``, its
number, which its duplicates share: so what comes out can be counted without looking into it.
"""

import random
from collections import Counter, deque
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from heartbeat_stream.core.identity.joining import join
from heartbeat_stream.core.identity.layer import Layer
from heartbeat_stream.local.market_messages import Original
from heartbeat_stream.local.record_sender import Record

__all__ = ["Kind", "MarketTraffic", "Sent", "Truth"]

_RESTART_AFTER = 200
"""A sequence starts again only when it has come further: as exchanges do after a reconnect."""
_REPLAYED_MAX = 30
_RECENT = 400
"""So far back, within its scope, lies the message that a duplicate repeats."""


class Kind(StrEnum):
    """What a message is in truth."""

    NEW = "new"
    RESENT = "resent"
    """The same text again."""
    REWRITTEN = "rewritten"
    """The same content in another text: keys in another order, 1.50 for 1.5."""
    OTHER_SOURCE = "other-source"
    """The same event, with an id of another numbering."""
    REPLAYED = "replayed"
    """One of a run of old messages that a reconnected source sends once more."""


class Truth(NamedTuple):
    """``number`` is the original's. ``layer`` is the one that recognises a duplicate."""

    number: int
    kind: Kind
    layer: Layer | None


class Sent(NamedTuple):
    """A record, and the truth about it. Its key is the scope, so that a scope keeps its order."""

    record: Record
    truth: Truth


@dataclass
class MarketTraffic:
    """Traffic that is the same for the same arguments and calls.

    The shares say how often each kind of duplicate is meant to come. ``restart_share`` of the
    messages begin their sequence anew. ``counts`` has what was made.
    """

    exchanges: int = 2
    symbols: int = 20
    seed: int = 1
    resent_share: float = 0.05
    rewritten_share: float = 0.04
    other_source_share: float = 0.05
    replay_share: float = 0.002
    restart_share: float = 0.002
    counts: Counter[Kind] = field(default_factory=Counter, init=False)

    def __post_init__(self) -> None:
        if self.exchanges < 1 or self.symbols < 1:
            raise ValueError("want one exchange and one symbol or more")
        self._random = random.Random(self.seed)
        self._scopes = [
            _Scope(f"exchange-{exchange}", f"SYM{symbol}-USDT", channel)
            for exchange in range(self.exchanges)
            for symbol in range(self.symbols)
            for channel in ("depth", "trade", "ticker")
        ]
        self._originals = 0
        self._other_ids = 5_000_000_000
        self._pending: deque[Sent] = deque()

    def generate(self, now_ms: int, n: int) -> list[Sent]:
        """The next ``n`` messages, as they are sent at this time; some 10 us for each."""
        made = []
        for _ in range(n):
            sent = self._pending.popleft() if self._pending else self._next(now_ms)
            self.counts[sent.truth.kind] += 1
            made.append(sent)
        return made

    def _next(self, now_ms: int) -> Sent:
        scope = self._random.choice(self._scopes)
        if scope.recent:
            share = self._random.random()
            for kind, kind_share in (
                (Kind.RESENT, self.resent_share),
                (Kind.REWRITTEN, self.rewritten_share),
                (Kind.OTHER_SOURCE, self.other_source_share),
                (Kind.REPLAYED, self.replay_share),
            ):
                if share < kind_share:
                    return self._duplicate(scope, kind)
                share -= kind_share
        return self._original(scope, now_ms)

    def _original(self, scope: "_Scope", now_ms: int) -> Sent:
        draw = self._random.random
        self._originals += 1
        restarts = scope.seq > _RESTART_AFTER and draw() < self.restart_share
        shares_time = scope.channel == "trade" and draw() < 0.4 and not restarts
        if not (shares_time and scope.ts):
            scope.ts = max(scope.ts + 1, now_ms * 1_000 + int(draw() * 1_000))
        scope.seq = self._random.randint(1, 3) if restarts else scope.seq + 1
        scope.trade_id += 1
        original = Original.draw(
            self._random, self._originals, scope.names, scope.seq, scope.ts, scope.trade_id
        )
        scope.recent.append(original)
        return self._sent(scope, original, original.text(), Kind.NEW, None)

    def _duplicate(self, scope: "_Scope", kind: Kind) -> Sent:
        recent = scope.recent
        place = len(recent) - 1 - int(self._random.random() ** 3 * len(recent))  # mostly young
        original = recent[place]
        if kind is Kind.OTHER_SOURCE and original.has_business_key:
            self._other_ids += 1
            text = original.text(self._random, self._other_ids)
            return self._sent(scope, original, text, kind, Layer.BUSINESS_KEY)
        if kind is Kind.REWRITTEN:
            text = original.text(self._random)
            return self._sent(scope, original, text, kind, original.layer)
        if kind is Kind.REPLAYED:
            run = list(recent)[place : place + self._random.randint(2, _REPLAYED_MAX)]
            for each in run[1:]:
                self._pending.append(self._sent(scope, each, each.text(), kind, each.layer))
            return self._sent(scope, original, original.text(), kind, original.layer)
        return self._sent(scope, original, original.text(), Kind.RESENT, original.layer)

    def _sent(
        self, scope: "_Scope", original: Original, text: bytes, kind: Kind, layer: Layer | None
    ) -> Sent:
        return Sent((scope.key, text), Truth(original.number, kind, layer))


class _Scope:
    """An exchange's channel of one symbol, and how far it has come."""

    def __init__(self, exchange: str, symbol: str, channel: str) -> None:
        self.names = (exchange, symbol, channel)
        self.channel = channel
        self.key = join((exchange, channel, symbol))
        self.seq = 0
        self.ts = 0
        self.trade_id = 0
        self.recent: deque[Original] = deque(maxlen=_RECENT)
