"""Lanes keep the order of what goes to a partition, whatever the broker does meanwhile."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Sequence
from typing import cast

import pytest
from aiokafka.errors import KafkaTimeoutError

from heartbeat_stream.streaming import lanes as module
from heartbeat_stream.streaming.lanes import Lanes
from heartbeat_stream.streaming.producer import BatchProducer, OutRecord, RecordRefused, Span
from tests.support.wait import wait_until_async


class Broker:
    """Takes batches in its own time, fails now and then, and refuses what is too large."""

    def __init__(self, failures: float = 0.0) -> None:
        self.logs: defaultdict[tuple[str, int], list[bytes]] = defaultdict(list)
        self.batches = 0
        self.open = asyncio.Event()
        self.open.set()
        self._failures = failures
        self._random = random.Random(1)

    async def publish(
        self, topic: str, partition: int, records: Sequence[OutRecord], timestamp_ms: int | None
    ) -> list[Span]:
        await self.open.wait()
        await asyncio.sleep(self._random.random() / 1000)
        if self._random.random() < self._failures:
            raise KafkaTimeoutError("the broker's fault")
        for record in records:
            if len(record.value or b"") > 1_000_000:
                raise RecordRefused(topic, record)
        self.batches += 1
        self.logs[topic, partition] += [record.value or b"" for record in records]
        return []


refused: list[OutRecord] = []


async def refuse(topic: str, record: OutRecord) -> None:
    refused.append(record)


def lanes_to(broker: Broker) -> Lanes:
    refused.clear()
    return Lanes(cast(BatchProducer, broker), refuse)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_RETRY_FIRST_S", 0.001)
    monkeypatch.setattr(module, "_RETRY_MOST_S", 0.002)


def numbered(first: int, count: int) -> list[OutRecord]:
    return [OutRecord(None, b"%d" % number) for number in range(first, first + count)]


async def test_the_order_of_a_partition_holds_while_batches_fail() -> None:
    broker = Broker(failures=0.5)
    lanes = lanes_to(broker)
    for number in range(300):
        lanes.put("t", number % 3, numbered(number, 1))
        if number % 7 == 0:
            await asyncio.sleep(0)
    await asyncio.wait_for(lanes.settled(), 30)
    for partition in range(3):
        assert broker.logs["t", partition] == [b"%d" % n for n in range(partition, 300, 3)]
    assert lanes.retries > 0
    assert lanes.waiting == 0


async def test_settled_waits_for_what_was_put_before_and_for_no_more() -> None:
    broker = Broker()
    lanes = lanes_to(broker)
    await lanes.settled()
    broker.open.clear()
    lanes.put("t", 0, numbered(0, 10))
    settling = asyncio.create_task(lanes.settled())
    await asyncio.sleep(0)
    assert not settling.done()
    lanes.put("t", 1, numbered(0, 1))
    broker.open.set()
    await asyncio.wait_for(settling, 10)
    assert len(broker.logs["t", 0]) == 10


async def test_what_comes_meanwhile_goes_together() -> None:
    broker = Broker()
    lanes = lanes_to(broker)
    broker.open.clear()
    for number in range(5_000):
        lanes.put("t", 0, numbered(number, 1))
        await asyncio.sleep(0) if number == 0 else None
    broker.open.set()
    await asyncio.wait_for(lanes.settled(), 10)
    assert broker.batches <= 3
    assert len(broker.logs["t", 0]) == 5_000


async def test_whoever_puts_too_much_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_WAITING", 100)
    broker = Broker()
    broker.open.clear()
    lanes = lanes_to(broker)
    lanes.put("t", 0, numbered(0, 99))
    await asyncio.wait_for(lanes.room(), 1)
    lanes.put("t", 1, numbered(0, 1))
    waiting = asyncio.create_task(lanes.room())
    await asyncio.sleep(0)
    assert not waiting.done()
    broker.open.set()
    await asyncio.wait_for(waiting, 10)
    await lanes.settled()


async def test_what_a_topic_never_takes_is_left_out_and_told() -> None:
    broker = Broker()
    lanes = lanes_to(broker)
    giant = OutRecord(b"k", b"x" * 1_000_001)
    lanes.put("t", 0, [*numbered(0, 3), giant, *numbered(3, 3)])
    await asyncio.wait_for(lanes.settled(), 10)
    assert broker.logs["t", 0] == [b"%d" % number for number in range(6)]
    assert refused == [giant]


async def test_at_the_end_nothing_goes_on() -> None:
    broker = Broker()
    broker.open.clear()
    lanes = lanes_to(broker)
    lanes.put("t", 0, numbered(0, 3))
    await asyncio.sleep(0)
    await lanes.stop()
    broker.open.set()
    await wait_until_async(lambda: len(asyncio.all_tasks()) == 1, what="no task is left")
    assert broker.logs == {}
