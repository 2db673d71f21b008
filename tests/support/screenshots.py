"""Pictures of the page for the README: `python -m tests.support.screenshots FOLDER`.

Starts the embedded stack, a worker and a simulated fleet, lets them run for some minutes so that
the charts have something to show, and takes the page in both themes and on a phone.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path

from playwright.async_api import Page

from heartbeat_stream.core.heartbeat import Heartbeat
from heartbeat_stream.history import INTERVAL_MS
from heartbeat_stream.local.fleet import Fleet
from heartbeat_stream.local.stack import EmbeddedStack
from tests.support.browser import Scheme, browser, context
from tests.support.oracle import now_ms
from tests.support.wait import wait_until_async
from tests.support.worker import Worker
from tests.support.world import Cluster, World, load, running_workers

RUN_S = 240.0
RATE = 3000
FIRST_RATE = 60
HOTELS = 20


async def samples(worker: Worker) -> int:
    status, body = await worker.get("/ui/api/worker")
    return len(json.loads(body)["history"]) if status == 200 else 0


async def take(worker: Worker, page: Page, path: Path, *, full: bool = True) -> None:
    await page.goto(f"http://127.0.0.1:{worker.port}/ui/?hotel=1309&room=大会议室")
    await page.wait_for_selector("#verdict[data-level=well]")
    await page.wait_for_selector("#room-result dl")
    await page.screenshot(path=path, full_page=full)
    print(path)  # noqa: T201 - what a script prints is its result


SHOTS: tuple[tuple[str, Scheme, bool], ...] = (
    ("light", "light", False),
    ("dark", "dark", False),
    ("phone", "light", True),
)


async def shoot(worker: Worker, folder: Path) -> None:
    async with browser() as running:
        for name, scheme, phone in SHOTS:
            scale = 2.0 if phone else 1.0
            async with context(running, scheme=scheme, phone=phone, scale=scale) as profile:
                page = await profile.new_page()
                await take(worker, page, folder / f"page-{name}.png", full=not phone)


async def main(folder: Path, seconds: float) -> None:
    with EmbeddedStack() as stack, tempfile.TemporaryDirectory() as place:
        cluster = Cluster(
            "embedded", stack.broker.bootstrap_servers, stack.broker.session_timeout_ms
        )
        with running_workers(Path(place)) as workers:
            world = World(cluster, stack.postgres.url, Path(place), workers)
            world.set(
                app_id="heartbeat-stream",
                topic="heartbeat",
                dead_letter_topic="heartbeat.dead-letter",
            )
            await world.prepare(partitions=8, buffer_window_ms=5000, cooldown_ms=30000)
            worker = await world.start_worker().ready()
            fleet = Fleet(hotels=HOTELS, rooms_per_hotel=100, broken_share=0.0005)
            async with load(world, fleet, FIRST_RATE) as running:
                room = Heartbeat(1309, "大会议室", now_ms(), "tablet-17", 1)
                for _ in range(2):
                    await world.send([room])
                    room = Heartbeat(1309, "大会议室", now_ms(), "tablet-17", 1)

                # The rooms come one by one: else all of them would be due at once for ever.
                await worker.until_metric("heartbeat_rooms_in_memory", 1_500, seconds=120)
                running.rate = RATE
                before = await samples(worker)

                async def has_run() -> bool:
                    return await samples(worker) >= before + seconds * 1000 / INTERVAL_MS

                await wait_until_async(has_run, seconds + 60, every=1.0)
                await world.send([Heartbeat(1309, "大会议室", now_ms(), "tablet-17", 1)])
                await shoot(worker, folder)


if __name__ == "__main__":
    Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    asyncio.run(main(Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else RUN_S))
