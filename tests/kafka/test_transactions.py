"""With transactions, outputs come exactly once, whatever happens to the workers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from functools import partial

import pytest
from aiokafka.structs import ConsumerRecord

from tests.support.kills import (
    SENT_MAX,
    SENT_PER_S,
    kills_and_rebalances,
    kills_one_after_the_other,
)
from tests.support.market_traffic import Outcome, Traffic, judge
from tests.support.oracle import now_ms
from tests.support.streams import Sent, no_lag_of_jobs, prepare_jobs, send, source
from tests.support.topic_reader import open_reader
from tests.support.world import World

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

NOTHING_WRONG = Outcome(set(), [], 0, 0)


async def visible(world: World, topic: str) -> Sequence[ConsumerRecord]:
    """What readers see that ask for what is committed."""
    async with open_reader(
        world.bootstrap_servers, topic, isolation_level="read_committed"
    ) as reader:
        await reader.ends()
        return reader.records


async def test_market_messages_exactly_once_through_kills_and_rebalances(world: World) -> None:
    await prepare_jobs(world, "market", checkpoint_ms=300, transactions=True)
    traffic = Traffic(3)
    third = await kills_and_rebalances(
        world, partial(traffic.send, world, source(world, "market"), SENT_MAX, SENT_PER_S)
    )
    unique = await visible(world, world.settings.market_unique_topic)
    assert judge(traffic, unique) == NOTHING_WRONG
    await third.stopped()


async def test_texts_exactly_once_through_kills(world: World) -> None:
    await prepare_jobs(
        world,
        "messages",
        messages_sink="topic",
        messages_window_ms=600_000,
        checkpoint_ms=300,
        transactions=True,
    )
    topic = source(world, "messages")
    sent: list[bytes] = []

    async def texts() -> None:
        for number in range(60):
            batch = [b"text %d" % (number * 50 + each) for each in range(50)]
            sent.extend(batch)
            await send(world, topic, [Sent(text, now_ms(), key=text) for text in batch * 2])
            await asyncio.sleep(0.1)
        await send(world, topic, [Sent(b"\xff", now_ms(), key=b"k")])

    worker = await kills_one_after_the_other(world, texts(), kills=3)
    printed = await visible(world, world.settings.messages_output_topic)
    assert Counter(record.value for record in printed) == Counter(sent)
    letters = await visible(world, world.dead_letter_topic)
    assert [record.value for record in letters] == [b"\xff"]
    await worker.stopped()


async def test_a_worker_that_was_frozen_puts_out_nothing_any_more(world: World) -> None:
    await prepare_jobs(world, "market", checkpoint_ms=300, transactions=True)
    traffic = Traffic(4)
    first = await world.start_worker().ready()
    sending = asyncio.create_task(traffic.send(world, source(world, "market"), 14_000, rate=1_000))
    await first.until_metric("heartbeat_judged_total", 2_000)
    first.freeze()
    second = await world.start_worker().ready()
    await second.until_metric("heartbeat_judged_total", 2_000, 60)
    first.thaw()
    await sending
    await no_lag_of_jobs(world)
    unique = await visible(world, world.settings.market_unique_topic)
    assert judge(traffic, unique) == NOTHING_WRONG
