"""The collector: real requests, the embedded broker, and what stands in Kafka afterwards."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time

import aiohttp
import pytest

from heartbeat_stream.core.tracking_record import Verdict, envelope_of
from heartbeat_stream.local.broker import Broker
from heartbeat_stream.local.process import free_port, suspend
from heartbeat_stream.local.sdk_reports import FORMS, send_report
from tests.support.brokers import on_embedded
from tests.support.door import (
    PATIENT,
    open_door,
    prepare_door,
    send_all,
    some_traffic,
    verdicts,
    wrong_verdicts,
)
from tests.support.sdk import event
from tests.support.topic_reader import open_reader
from tests.support.wait import wait_until_async
from tests.support.world import World

pytestmark = on_embedded


async def test_every_form_of_a_report_arrives_as_it_was_sent(world: World) -> None:
    settings = await prepare_door(world)
    before = time.time_ns() // 1_000_000
    sent = []
    async with open_door(settings) as door, aiohttp.ClientSession() as session:
        for number, form in enumerate(FORMS):
            one, two = event(10 * number), event(10 * number + 1)
            assert (
                await send_report(session, door.url, form, one, project="shop", remark="live")
                == 200
            )
            assert await send_report(session, door.url, form, [two, one], project="shop") == 200
            sent += [one, two, one]
    async with open_reader(world.bootstrap_servers, settings.tracking_topic) as reader:
        records = await reader.until(len(sent))
    assert sorted(json.loads(record.value)["_track_id"] for record in records) == sorted(
        one["_track_id"] for one in sent
    )
    assert all(json.loads(record.value) in sent for record in records)
    envelopes = [envelope_of(record.headers) for record in records]
    assert {envelope.project for envelope in envelopes} == {"shop"}
    assert {envelope.remark for envelope in envelopes} == {"live", None}
    assert {envelope.verdict for envelope in envelopes} == {None}, "it is judged behind Kafka"
    assert all(before <= (one.received_at_ms or 0) <= before + 60_000 for one in envelopes)
    placed = {(record.key, record.partition) for record in records}
    assert len(placed) == len({record.key for record in records}), "a person has one partition"


@pytest.mark.parametrize("store", ["memory", "postgres"])
@pytest.mark.parametrize("policy", ["mark", "drop"])
async def test_known_truth_at_the_door(world: World, store: str, policy: str) -> None:
    """Several tabs flush the same cache at once: no copy is missed, and none is made up."""
    settings = await prepare_door(
        world,
        tracking_place="door",
        tracking_policy=policy,
        collect_store=store,
        **PATIENT,
    )
    await judged_without_a_mistake(world, policy, collectors=1 if store == "memory" else 2)
    assert settings.collect_store == store


async def judged_without_a_mistake(world: World, policy: str, collectors: int) -> None:
    settings = world.settings
    traffic, flushes = some_traffic(seed=11)
    async with open_door(settings) as first, open_door(settings) as second:
        await send_all([first.url, second.url][:collectors], flushes)
    kept = traffic.to_be_kept(dropped=policy == "drop")
    async with open_reader(world.bootstrap_servers, settings.tracking_topic) as reader:
        records = await reader.until(kept)
        assert not await reader.fetch()
    assert not wrong_verdicts(verdicts(records), traffic, dropped=policy == "drop")


async def test_what_kafka_does_not_take_waits_on_disk(world: World) -> None:
    """Kafka comes late: copies that were spooled meanwhile are told apart all the same."""
    port = free_port()
    world.set(
        brokers=f"127.0.0.1:{port}",
        tracking_topic=f"{world.topic}.tracking",
        collect_spool_dir=world.directory / "spool",
        tracking_place="door",
    )
    settings = world.settings
    async with open_door(settings, connected=False) as door, aiohttp.ClientSession() as session:
        for _ in range(3):
            assert await send_report(session, door.url, "form", [event(1)]) == 200
        assert door.service.figures.reports["spooled"] == 3
        assert door.service.spool.size > 0
        with Broker(port=port) as broker:
            await prepare_door(world, brokers=broker.bootstrap_servers)
            await wait_until_async(lambda: door.service.figures.drained == 3, 30)
            assert await send_report(session, door.url, "form", [event(1)]) == 200
            assert door.service.figures.reports["acknowledged"] == 1
            assert not door.service.spool.size
            async with open_reader(broker.bootstrap_servers, settings.tracking_topic) as reader:
                found = verdicts(await reader.until(4))
    assert found[1] == {Verdict.FIRST: 1, Verdict.DUPLICATE: 3}


async def test_kafka_that_hangs_holds_nobody_and_what_it_has_is_not_sent_again(
    world: World,
) -> None:
    """A broker is frozen: clients wait for so long and no longer. What it takes after all, when it
    goes on, is not sent a second time from the spool."""
    with Broker() as broker:
        settings = await prepare_door(
            world,
            brokers=broker.bootstrap_servers,
            tracking_place="door",
            collect_ack_wait_ms=200,
        )
        async with open_door(settings) as door, aiohttp.ClientSession() as session:
            assert await send_report(session, door.url, "form", [event(0)]) == 200
            suspend(broker.pid)
            try:
                started = time.monotonic()
                assert await send_report(session, door.url, "form", [event(1), event(2)]) == 200
                assert time.monotonic() - started < 5
                assert door.service.figures.reports["spooled"] == 1
            finally:
                os.kill(broker.pid, signal.SIGCONT)
            await wait_until_async(lambda: not door.service.spool.size, 30)
            assert await send_report(session, door.url, "form", [event(1), event(2)]) == 200
        async with open_reader(broker.bootstrap_servers, settings.tracking_topic) as reader:
            found = verdicts(await reader.until(5))
            assert not await reader.fetch()
    once, twice = {Verdict.FIRST: 1}, {Verdict.FIRST: 1, Verdict.DUPLICATE: 1}
    assert [found[number] for number in range(3)] == [once, twice, twice]


async def test_a_full_spool_is_answered_with_503(world: World) -> None:
    world.set(
        brokers=f"127.0.0.1:{free_port()}",
        collect_spool_dir=world.directory / "spool",
        collect_spool_mb=1,
    )
    big = [event(1, properties={"text": "x" * 400_000})]
    async with (
        open_door(world.settings, connected=False) as door,
        aiohttp.ClientSession() as session,
    ):
        answers = [await send_report(session, door.url, "json", big) for _ in range(4)]
        async with session.get(f"{door.url}/health/ready") as response:
            assert (await response.json())["kafka"] is False
        async with session.get(f"{door.url}/health/live") as response:
            assert response.status == 200
    assert answers == [200, 200, 503, 503]


async def test_a_store_that_is_away_holds_nobody(world: World) -> None:
    settings = await prepare_door(
        world,
        tracking_place="door",
        collect_store="postgres",
        database_url="postgresql://postgres@127.0.0.1:1/postgres",
    )
    async with open_door(settings) as door, aiohttp.ClientSession() as session:
        started = time.monotonic()
        for number in range(20):
            assert (
                await send_report(session, door.url, "form", [event(number), event(number)]) == 200
            )
        assert time.monotonic() - started < 10
        assert door.service.judge is not None
        assert door.service.judge.failures >= 1
    async with open_reader(world.bootstrap_servers, settings.tracking_topic) as reader:
        found = verdicts(await reader.until(40))
    assert all(one == {Verdict.UNJUDGED: 1, Verdict.DUPLICATE: 1} for one in found.values())


async def test_metrics(world: World) -> None:
    settings = await prepare_door(world, tracking_place="door")
    async with open_door(settings) as door, aiohttp.ClientSession() as session:
        for form in ("form", "json"):
            await send_report(session, door.url, form, [event(1)], project="shop")
        await send_report(session, door.url, "json", [5])
        async with session.get(f"{door.url}/metrics") as response:
            lines = (await response.text()).splitlines()
    labels = 'lib="js",policy="mark",project="shop"'
    wanted = [
        'heartbeat_collect_reports_total{outcome="acknowledged"} 3.0',
        f'heartbeat_collect_events_total{{{labels},verdict="first"}} 1.0',
        f'heartbeat_collect_events_total{{{labels},verdict="duplicate"}} 1.0',
        'heartbeat_collect_bad_total{reason="not-object"} 1.0',
        "heartbeat_collect_ready 1.0",
    ]
    assert not set(wanted) - set(lines)


async def test_reports_at_the_same_time_wait_for_each_other(world: World) -> None:
    settings = await prepare_door(world, tracking_place="door")
    async with open_door(settings) as door, aiohttp.ClientSession() as session:
        events = [event(number) for number in range(50)]
        both = [send_report(session, door.url, "form", some) for some in (events, events[::-1])]
        assert await asyncio.gather(*both) == [200, 200]
    async with open_reader(world.bootstrap_servers, settings.tracking_topic) as reader:
        found = verdicts(await reader.until(100))
    assert all(one == {Verdict.FIRST: 1, Verdict.DUPLICATE: 1} for one in found.values())
