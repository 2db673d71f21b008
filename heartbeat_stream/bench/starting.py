"""How long a worker takes from its start until it is ready, on an empty state."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from heartbeat_stream.bench.ground import Ground

__all__ = ["measure_starts"]


async def measure_starts(ground: Ground, starts: int, say: Callable[[str], None]) -> list[float]:
    """Seconds of several starts, each of a group and a directory of its own. Raises BenchError."""
    seconds = []
    topic = await ground.create_topic("start", 8)
    for number in range(1, starts + 1):
        say(f"start on {ground.kind}: {number} of {starts}")
        site = ground.site(topic, 8, keyed=True)
        await asyncio.to_thread(site.init)
        with site.worker() as worker:
            seconds.append(await asyncio.to_thread(worker.wait_until_ready))
            await asyncio.to_thread(worker.stop)
    return seconds
