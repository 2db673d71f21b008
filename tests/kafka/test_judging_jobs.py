"""Jobs that judge, on Apache Kafka: without faults nothing is false or missing; with kills and
rebalances nothing is missing, and what comes twice is the same record of the source."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial

import pytest

from tests.support.kills import (
    SENT_MAX,
    SENT_PER_S,
    kills_and_rebalances,
    kills_one_after_the_other,
)
from tests.support.market_traffic import Outcome, Traffic, judge
from tests.support.oracle import now_ms
from tests.support.streams import (
    Sent,
    headers_of,
    no_lag_of_jobs,
    prepare_jobs,
    send,
    source,
    written,
)
from tests.support.world import World

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


async def outcome(world: World, traffic: Traffic) -> Outcome:
    await no_lag_of_jobs(world)
    return judge(traffic, await written(world, world.settings.market_unique_topic))


async def test_market_messages_without_faults(world: World) -> None:
    await prepare_jobs(world, "market")
    traffic = Traffic()
    worker = await world.start_worker().ready()
    await traffic.send(world, source(world, "market"), 6_000, rate=4_000)
    assert await outcome(world, traffic) == (set(), [], 0, 0)
    figures = await worker.metrics()
    assert figures["heartbeat_layer_hits_total"] == traffic.copies
    await worker.stopped()


async def test_market_messages_with_kills_and_rebalances(world: World) -> None:
    await prepare_jobs(world, "market", checkpoint_ms=300)
    traffic = Traffic(2)
    third = await kills_and_rebalances(
        world, partial(traffic.send, world, source(world, "market"), SENT_MAX, SENT_PER_S)
    )
    found = await outcome(world, traffic)
    assert found.missing == set()
    assert found.false == []
    await third.stopped()


async def test_the_window_holds_across_a_rebalance_and_a_restart(world: World) -> None:
    await prepare_jobs(world, "messages", messages_sink="topic", messages_window_ms=600_000)
    topic = source(world, "messages")
    texts = [f"text {number} 房间".encode() for number in range(300)]

    async def copies() -> None:
        await send(world, topic, [Sent(text, now_ms()) for text in texts])

    first = await world.start_worker().ready()
    await copies()
    await no_lag_of_jobs(world)
    second = await world.start_worker().ready()  # half of the partitions move
    await copies()
    await no_lag_of_jobs(world)
    await first.stopped()
    await copies()
    await no_lag_of_jobs(world)
    await second.stopped()
    third = await world.start_worker().ready()
    await copies()
    await no_lag_of_jobs(world)
    printed = await written(world, world.settings.messages_output_topic)
    assert Counter(record.value for record in printed) == Counter(texts)
    assert (await third.metrics())["heartbeat_judged_total"] >= len(texts)


async def test_texts_with_kills(world: World) -> None:
    await prepare_jobs(
        world, "messages", messages_sink="topic", messages_window_ms=600_000, checkpoint_ms=300
    )
    topic = source(world, "messages")
    sent: list[bytes] = []

    async def texts() -> None:
        for number in range(60):
            batch = [b"text %d" % (number * 50 + each) for each in range(50)]
            sent.extend(batch)
            await send(world, topic, [Sent(text, now_ms(), key=text) for text in batch * 2])
            await asyncio.sleep(0.1)

    await kills_one_after_the_other(world, texts(), kills=2)
    printed = await written(world, world.settings.messages_output_topic)
    assert {record.value for record in printed} == set(sent)
    places: dict[bytes, set[str]] = {}
    for record in printed:
        headers = headers_of(record)
        place = f"{headers['source-partition']}-{headers['source-offset']}"
        places.setdefault(record.value, set()).add(place)
    assert {text: found for text, found in places.items() if len(found) > 1} == {}
