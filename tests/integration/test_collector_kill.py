"""The collector as a process of its own, and kill -9 in the middle."""

from __future__ import annotations

import asyncio
import json
import random
from asyncio.subprocess import Process
from collections import Counter

import aiohttp
import pytest

from heartbeat_stream.core.tracking_record import Verdict, envelope_of
from heartbeat_stream.local.broker import Broker
from heartbeat_stream.local.process import free_port
from heartbeat_stream.local.sdk_reports import send_report
from tests.support.brokers import on_embedded
from tests.support.command import run_command, start_command
from tests.support.door import prepare_door
from tests.support.sdk import event
from tests.support.topic_reader import open_reader
from tests.support.wait import wait_until_async
from tests.support.world import World

pytestmark = on_embedded

KILLS = 3


class Collecting:
    """A collector that is killed and started again, on one port and one spool."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._port = int(world.environment["HEARTBEAT_COLLECT_PORT"])
        self.url = f"http://127.0.0.1:{self._port}"
        self.process: Process

    async def start(self, session: aiohttp.ClientSession, *, kafka: bool = True) -> None:
        self.process = await start_command(self._world, "collect")

        async def ready() -> bool:
            try:
                async with session.get(f"{self.url}/health/ready") as response:
                    return response.status == 200 and (await response.json())["kafka"] is kafka
            except aiohttp.ClientError:
                return False

        await wait_until_async(ready, 60, what="the collector is ready")

    async def end(self, *, kill: bool = False) -> str:
        (self.process.kill if kill else self.process.terminate)()
        _, log = await asyncio.wait_for(self.process.communicate(), 60)
        return log.decode()


@pytest.mark.parametrize("store", ["memory", "postgres"])
async def test_no_event_is_lost_and_none_falsely_a_duplicate(world: World, store: str) -> None:
    """Reports go on while the collector is killed. What was answered with 200 is in Kafka at the
    end, and of each event the first copy that is there is no duplicate."""
    settings = await prepare_door(
        world,
        collect_port=free_port(),
        tracking_place="door",
        collect_store=store,
        collect_claim_ms=5_000,
    )
    collecting, chance = Collecting(world), random.Random(5)
    answered: set[int] = set()
    done = asyncio.Event()

    async def client(session: aiohttp.ClientSession, number: int) -> None:
        track = number
        while not done.is_set():
            events = [event(track + 10 * one) for one in range(3)]
            for copy in range(1 + track % 2):
                if await _answered(session, collecting.url, events, copy):
                    answered.update(one["_track_id"] for one in events)
            track += 30

    async with aiohttp.ClientSession() as session:
        await collecting.start(session)
        clients = [asyncio.create_task(client(session, number)) for number in range(4)]
        for _ in range(KILLS):
            before = len(answered)
            await wait_until_async(lambda n=before: len(answered) > n + 60, 60)
            await asyncio.sleep(chance.random() * 0.05)
            await collecting.end(kill=True)
            await collecting.start(session)
        done.set()
        await asyncio.gather(*clients)
        await wait_until_async(lambda: _drained(session, collecting.url), 60)
        await collecting.end()
    assert collecting.process.returncode == 0
    async with open_reader(world.bootstrap_servers, settings.tracking_topic) as reader:
        await reader.ends()
    verdicts: dict[int, Counter[Verdict | None]] = {}
    for record in reader.records:
        track_id = json.loads(record.value)["_track_id"]
        verdicts.setdefault(track_id, Counter())[envelope_of(record.headers).verdict] += 1
    assert not answered - set(verdicts), "what was answered with 200 is in Kafka"
    false = {one for one, found in verdicts.items() if set(found) == {Verdict.DUPLICATE}}
    assert not false, "each duplicate has a first"


async def test_what_is_in_the_spool_survives_a_kill(world: World) -> None:
    """Kafka is away: reports are answered all the same, and are in Kafka after a kill -9."""
    port = free_port()
    world.set(
        brokers=f"127.0.0.1:{port}",
        tracking_topic=f"{world.topic}.tracking",
        collect_spool_dir=world.directory / "spool",
        collect_port=free_port(),
    )
    collecting = Collecting(world)
    async with aiohttp.ClientSession() as session:
        await collecting.start(session, kafka=False)
        for number in range(100):
            assert await send_report(session, collecting.url, "form", [event(number)]) == 200
        await collecting.end(kill=True)
        with Broker(port=port) as broker:
            settings = await prepare_door(world, brokers=broker.bootstrap_servers)
            await collecting.start(session)
            async with open_reader(broker.bootstrap_servers, settings.tracking_topic) as reader:
                records = await reader.until(100)
                assert not await reader.fetch()
            await collecting.end()
    found = {json.loads(record.value)["_track_id"] for record in records}
    assert found == {100_000 + number for number in range(100)}


async def _answered(
    session: aiohttp.ClientSession, url: str, events: list[dict[str, object]], copy: int
) -> bool:
    try:
        return await send_report(session, url, "form" if copy else "json", events) == 200
    except aiohttp.ClientError:
        await asyncio.sleep(0.05)
        return False


async def _drained(session: aiohttp.ClientSession, url: str) -> bool:
    async with session.get(f"{url}/health/ready") as response:
        return not (await response.json())["spool_bytes"]


async def test_a_second_collector_with_memory_says_so(world: World) -> None:
    await prepare_door(world, tracking_place="door", collect_port=free_port())
    async with aiohttp.ClientSession() as session:
        first = Collecting(world)
        await first.start(session)
        world.set(collect_port=free_port())
        second = Collecting(world)
        await second.start(session)
        assert "neither knows what the other has seen" in await second.end()
        assert "neither knows" not in await first.end()


async def test_a_port_that_is_taken(world: World) -> None:
    await prepare_door(world, collect_port=free_port())
    async with aiohttp.ClientSession() as session:
        first = Collecting(world)
        await first.start(session)
        done = await run_command(world, "collect", code=1)
        assert "HEARTBEAT_COLLECT_PORT" in done.err
        await first.end()
