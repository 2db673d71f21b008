"""What a soak's workers need over time: memory, open files, threads; how far they are behind."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import NamedTuple

from aiokafka.errors import KafkaError

from tests.soak.ground import Ground

__all__ = ["Event", "Recorder", "Sample"]


_LAG_S = 20.0  # a busy machine takes seconds to ask for all offsets


class Sample(NamedTuple):
    """One look at one worker, ``at`` seconds after the start. Memory in MiB."""

    at: float
    worker: str
    rss: float
    files: int
    threads: int


class Event(NamedTuple):
    """A fault, by its name, with its beginning and its end in seconds after the start."""

    begins: float
    ends: float
    fault: str


class Recorder:
    """Looks again and again until it is cancelled."""

    def __init__(self, ground: Ground, every_s: float = 5.0) -> None:
        self._ground = ground
        self._every_s = every_s
        self._started = time.monotonic()
        self.samples: list[Sample] = []
        self.lags: list[tuple[float, float]] = []
        self.events: list[Event] = []

    def elapsed(self) -> float:
        return time.monotonic() - self._started

    async def run(self) -> None:
        while True:
            for worker in list(self._ground.workers):
                sample = _look(worker.pid, worker.name, self.elapsed()) if worker.running else None
                if sample is not None:
                    self.samples.append(sample)
            try:
                async with asyncio.timeout(_LAG_S):
                    self.lags.append((self.elapsed(), float(await self._lag())))
            except (KafkaError, OSError):
                pass  # nobody can tell while the broker is away
            await asyncio.sleep(self._every_s)

    async def _lag(self) -> int:
        """Heartbeats that stand in a topic and are not committed."""
        world = self._ground.world
        return await world.lag() + await world.lag(world.repartition_topic)


def _look(pid: int, name: str, at: float) -> Sample | None:
    root = Path(f"/proc/{pid}")
    try:
        status = dict(
            line.split(":", 1) for line in (root / "status").read_text().splitlines() if ":" in line
        )
        files = sum(1 for _ in (root / "fd").iterdir())
        return Sample(
            at, name, int(status["VmRSS"].split()[0]) / 1024, files, int(status["Threads"])
        )
    except (OSError, KeyError):
        return None  # it has just ended
