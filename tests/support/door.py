"""A collector within the test's process, behind a real port, and a client that is an SDK."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from aiohttp import web
from aiokafka.structs import ConsumerRecord

from heartbeat_stream.collector.run import make_service
from heartbeat_stream.collector.server import make_runner
from heartbeat_stream.collector.service import Service
from heartbeat_stream.core.tracking_record import Verdict, envelope_of
from heartbeat_stream.local.report_sender import send_flush
from heartbeat_stream.local.tracking_traffic import LATE_MAX_MS, Flush, TrackingTraffic
from heartbeat_stream.settings import Settings
from heartbeat_stream.streaming.datadir import DataDirectory
from heartbeat_stream.streaming.topics import TopicSpec
from tests.support.oracle import now_ms
from tests.support.wait import wait_until_async
from tests.support.world import World

__all__ = [
    "PATIENT",
    "Door",
    "open_door",
    "prepare_door",
    "send_all",
    "some_traffic",
    "verdicts",
    "wrong_verdicts",
]


#: On a busy machine a store that is well may be slow, and Kafka too: events would pass unjudged, or
#: wait in the spool of a collector that has ended.
PATIENT: dict[str, Any] = {
    "collect_store_wait_ms": 10_000,
    "collect_ack_wait_ms": 20_000,
    "collect_claim_ms": 60_000,
}


async def prepare_door(world: World, **environment: object) -> Settings:
    """Create the topics of tracking, and give the collector settings of its own."""
    world.set(
        tracking_topic=f"{world.topic}.tracking",
        collect_spool_dir=world.directory / "spool",
        collect_store_table=f"{world.settings.table}_seen",
        **environment,
    )
    settings = world.settings
    await world.create_topics(
        TopicSpec(settings.tracking_topic, 4, 1), TopicSpec(settings.dead_letter_topic, 1, 1)
    )
    return settings


class Door:
    """One collector that runs."""

    def __init__(self, service: Service, url: str) -> None:
        self.service = service
        self.url = url


@asynccontextmanager
async def open_door(settings: Settings, *, connected: bool = True) -> AsyncIterator[Door]:
    """Run a collector. ``connected``: only once it has found Kafka."""
    directory = DataDirectory.claim(settings.collect_spool_dir, settings.app_id)
    service = make_service(settings, directory)
    runner = make_runner(service)
    service.start()
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        if connected:
            await wait_until_async(lambda: service.sender.ready, 30, what="Kafka is found")
        yield Door(service, f"http://{host}:{port}")
    finally:
        await runner.cleanup()
        service.ending = True
        await service.stop(0)
        directory.release()


def some_traffic(seed: int, events: int = 900) -> tuple[TrackingTraffic, list[Flush]]:
    """Traffic whose tabs have all flushed, in a random order."""
    traffic = TrackingTraffic("run", seed, tabs=(1, 1, 2, 3))
    at_ms = now_ms()
    flushes = traffic.generate(at_ms, events)
    flushes += traffic.late(at_ms + LATE_MAX_MS)
    random.Random(seed).shuffle(flushes)
    return traffic, flushes


async def send_all(urls: list[str], flushes: list[Flush], at_once: int = 8) -> None:
    """Send all of some traffic, so many reports at a time, to the collectors in turn."""
    room = asyncio.Semaphore(at_once)

    async def one(number: int, flush: Flush) -> None:
        async with room:
            assert await send_flush(session, urls[number % len(urls)], flush) == 200

    async with aiohttp.ClientSession() as session:
        await asyncio.gather(*(one(number, flush) for number, flush in enumerate(flushes)))


def verdicts(records: Iterable[ConsumerRecord]) -> dict[int, Counter[Verdict | None]]:
    """By the number of the event: how many records have which verdict."""
    found: dict[int, Counter[Verdict | None]] = defaultdict(Counter)
    for record in records:
        number = json.loads(record.value)["properties"]["number"]
        found[number][envelope_of(record.headers).verdict] += 1
    return found


def wrong_verdicts(
    found: dict[int, Counter[Verdict | None]], traffic: TrackingTraffic, *, dropped: bool = False
) -> dict[int, Any]:
    """Where the verdicts differ from the truth: nothing, if all is right."""
    wanted: dict[int, Counter[Verdict | None]] = {}
    for number, copies in traffic.copies.items():
        if number in traffic.exempt:
            wanted[number] = Counter({Verdict.EXEMPT: copies})
        else:
            duplicates = 0 if dropped else copies - 1
            wanted[number] = Counter({Verdict.FIRST: 1, Verdict.DUPLICATE: duplicates})
    return {
        number: (found.get(number), wanted.get(number))
        for number in {*found, *wanted}
        if found.get(number, Counter()) != wanted.get(number, Counter())
    }
