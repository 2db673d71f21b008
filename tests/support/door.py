"""A collector within the test's process, behind a real port, and a client that is an SDK."""

from __future__ import annotations

import asyncio
import json
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
from heartbeat_stream.local.sdk_reports import send_report
from heartbeat_stream.settings import Settings
from heartbeat_stream.streaming.datadir import DataDirectory
from heartbeat_stream.streaming.topics import TopicSpec
from tests.support.sdk import SdkTraffic
from tests.support.wait import wait_until_async
from tests.support.world import World

__all__ = ["Door", "open_door", "prepare_door", "send_all", "verdicts", "wrong_verdicts"]


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


async def send_all(urls: list[str], traffic: SdkTraffic, at_once: int = 8) -> None:
    """Send all of some traffic, so many reports at a time, to the collectors in turn."""
    reports = traffic.reports()
    room = asyncio.Semaphore(at_once)

    async def one(number: int, form: str, events: list[dict[str, Any]]) -> None:
        async with room:
            url = urls[number % len(urls)]
            assert (
                await send_report(session, url, form, events, project="shop", remark="live") == 200
            )

    async with aiohttp.ClientSession() as session:
        await asyncio.gather(*(one(number, *report) for number, report in enumerate(reports)))


def verdicts(records: Iterable[ConsumerRecord]) -> dict[int, Counter[Verdict | None]]:
    """By track id: how many records have which verdict."""
    found: dict[int, Counter[Verdict | None]] = defaultdict(Counter)
    for record in records:
        value = json.loads(record.value)
        track_id = value["_track_id"] if value["type"] == "track" else 0
        found[track_id][envelope_of(record.headers).verdict] += 1
    return found


def wrong_verdicts(
    found: dict[int, Counter[Verdict | None]], traffic: SdkTraffic, *, dropped: bool = False
) -> dict[int, Any]:
    """Where the verdicts differ from the truth: nothing, if all is right."""
    wanted: dict[int, Counter[Verdict | None]] = {0: Counter({Verdict.EXEMPT: traffic.plain})}
    for track_id, copies in traffic.copies.items():
        wanted[track_id] = Counter({Verdict.FIRST: 1})
        if copies > 1 and not dropped:
            wanted[track_id][Verdict.DUPLICATE] = copies - 1
    return {
        track_id: (found.get(track_id), wanted.get(track_id))
        for track_id in {*found, *wanted}
        if found.get(track_id, Counter()) != wanted.get(track_id, Counter())
    }
