"""Market messages of which it is known which are the same, sent while a test goes on."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from aiokafka.structs import ConsumerRecord

from tests.support.oracle import now_ms
from tests.support.streams import headers_of
from tests.support.world import World

SYMBOLS = ("BTC", "ETH", "币安", "SOL|USD", "a:b")
TICK_S = 0.05


class Name(NamedTuple):
    """What makes a message one."""

    symbol: str
    channel: str
    seq: int


class Traffic:
    """Messages with copies: exact ones, of another gateway without ids, with other spelling."""

    def __init__(self, seed: int = 1) -> None:
        self._random = random.Random(seed)
        self._seq: Counter[tuple[str, str]] = Counter()
        self._copies: list[bytes] = []
        self._base_us = now_ms() * 1000
        self.names: list[Name] = []
        self.copies = 0

    def batch(self, size: int) -> Iterator[bytes]:
        """So many messages, a fifth of them copies of earlier ones."""
        for _ in range(size):
            if self._copies and self._random.random() < 0.2:
                self.copies += 1
                yield self._random.choice(self._copies[-200:])
            else:
                yield self._fresh()

    def _fresh(self) -> bytes:
        symbol = self._random.choice(SYMBOLS)
        channel = self._random.choice(("depth", "trade", "ticker"))
        self._seq[symbol, channel] += 1
        seq = self._seq[symbol, channel]
        self.names.append(Name(symbol, channel, seq))
        message = {
            "exchange": "X",
            "symbol": symbol,
            "channel": channel,
            "ts": self._base_us + len(self.names),
            "seq": seq,
            "price": 1.5,
        }
        if channel == "trade":
            message["trade_id"] = seq
        value = json.dumps(message).encode()
        other_gateway = json.dumps({**message, "seq": None, "route": "b"}).encode()
        other_spelling = json.dumps({**message, "price": "1.50", "received_at": 5}).encode()
        self._copies += [value, other_gateway, other_spelling]
        return value

    async def send(
        self, world: World, topic: str, count: int, rate: float, stop: asyncio.Event | None = None
    ) -> None:
        """Send so many, or until ``stop`` is set; each symbol's in a source partition of its own,
        in order."""
        partitions = world.settings.partitions
        async with world.producer(request_timeout_ms=60_000) as producer:
            futures = []
            left = count
            while left > 0 and not (stop and stop.is_set()):
                for value in self.batch(min(left, max(1, int(rate * TICK_S)))):
                    place = SYMBOLS.index(json.loads(value)["symbol"]) % partitions
                    futures.append(await producer.send(topic, value, partition=place))
                    left -= 1
                await asyncio.sleep(TICK_S)
            await asyncio.gather(*futures)


class Outcome(NamedTuple):
    """What the output says of the traffic."""

    missing: set[Name]
    false: list[Name]
    """Put out by another record than before: a copy that was taken for new."""
    repeats: int
    """The same record of the source, put out once more."""
    disorder: int
    """Messages of a sequence that stand before one that came earlier, repeats aside."""


def judge(traffic: Traffic, unique: Sequence[ConsumerRecord]) -> Outcome:
    """Compare the unique messages with what was sent."""
    places: dict[Name, set[str]] = {}
    newest: dict[tuple[str, str], int] = {}
    repeats = disorder = 0
    false = []
    for record in unique:
        message = json.loads(record.value)
        headers = headers_of(record)
        place = f"{headers['source-partition']}-{headers['source-offset']}"
        name = Name(message["symbol"], message["channel"], message["seq"])
        seen = places.setdefault(name, set())
        if place in seen:
            repeats += 1
            continue
        if seen:
            false.append(name)
        seen.add(place)
        sequence = name.symbol, name.channel
        disorder += name.seq < newest.get(sequence, 0)
        newest[sequence] = max(name.seq, newest.get(sequence, 0))
    return Outcome(set(traffic.names) - set(places), false, repeats, disorder)
