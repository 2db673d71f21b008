"""Workers under load, which must live through whatever a test does meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from heartbeat_stream.local.fleet import Fleet
from tests.support.worker import Worker
from tests.support.world import Load, World, load

__all__ = ["Scene", "busy", "staying_alive"]

COOLDOWN_MS = 3_000
HOTELS, ROOMS_PER_HOTEL = 20, 250
ROOMS = HOTELS * ROOMS_PER_HOTEL
RATE = 3_000


class Scene(NamedTuple):
    """Workers under load."""

    load: Load
    workers: list[Worker]

    async def goes_on(self, seconds: float = 120.0) -> None:
        """Wait until all are ready, take in records, write rows and make checkpoints again."""
        for worker in self.workers:
            await worker.ready(seconds)
            before = await worker.metrics()
            for name, more in (
                ("heartbeat_records_total", RATE / 2),
                ("heartbeat_rows_written_total", ROOMS / 4),
                ("heartbeat_checkpoints_total", 2),
            ):
                await worker.until_metric(name, before[name] + more, seconds)


@asynccontextmanager
async def busy(world: World, workers: int = 1, *, keyed: bool = False) -> AsyncIterator[Scene]:
    """Workers under load, which must live as long as the block, and say so all the time."""
    await world.prepare(source_keyed=keyed, cooldown_ms=COOLDOWN_MS)
    started = [world.start_worker() for _ in range(workers)]
    for worker in started:
        await worker.ready()
    async with (
        staying_alive(*started),
        load(world, Fleet(HOTELS, ROOMS_PER_HOTEL, keyed=keyed), RATE) as running,
    ):
        scene = Scene(running, started)
        await scene.goes_on()
        yield scene


@asynccontextmanager
async def staying_alive(*workers: Worker) -> AsyncIterator[None]:
    """Require that /health/live says 200 all the time, and that nobody ends."""

    async def watch(worker: Worker) -> None:
        while True:
            assert worker.running, f"{worker.name} has ended{worker.log_end()}"
            status, body = await worker.get("/health/live")
            assert status == 200, f"{worker.name}: {body!r}{worker.log_end()}"
            await asyncio.sleep(0.2)

    watches = [asyncio.create_task(watch(worker)) for worker in workers]
    try:
        yield
    finally:
        for task in watches:
            task.cancel()
        await asyncio.wait(watches)
    for task in watches:
        with contextlib.suppress(asyncio.CancelledError):
            task.result()
