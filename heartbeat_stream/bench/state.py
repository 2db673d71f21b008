"""What a million rooms cost in memory, and how long it takes to recover them.

All rooms are written once, and recovered in that state: nothing is pending. Then each gets a newer
heartbeat within its cooldown, and all are recovered once more: now every one is pending, and must
be in memory before the worker is ready. A worker is ended by SIGKILL before each recovery.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass

from heartbeat_stream.bench.filling import fill
from heartbeat_stream.bench.ground import Ground, Site
from heartbeat_stream.bench.load import RollCall
from heartbeat_stream.bench.throughput import wait_until_committed
from heartbeat_stream.bench.verification import AT_ONCE, verify, wait_until_written
from heartbeat_stream.bench.worker_process import BenchError, WorkerProcess
from heartbeat_stream.local.broker import SESSION_TIMEOUT_MS

__all__ = ["Recovery", "StateFigures", "measure_state"]

_PARTITIONS = 8
_DAY_MS = str(24 * 3600 * 1000)
_PENDING_S = 300.0
#: The broker forgets a killed worker only after its session: until then it holds the next one up.
_FORGOTTEN_S = SESSION_TIMEOUT_MS / 1000 + 1.0

Say = Callable[[str], None]


@dataclass(frozen=True)
class Recovery:
    """One recovery: seconds from the start of the process, and from the assignment, until ready."""

    what: str
    since_start_s: float
    since_assignment_s: float
    changelog_records: int
    cpu_seconds: float


@dataclass(frozen=True)
class StateFigures:
    """Bytes of resident memory, and the recoveries."""

    rooms: int
    broker: str
    idle_rss: int
    pending_rss: int
    recoveries: tuple[Recovery, ...]

    @property
    def bytes_per_room(self) -> float:
        return (self.pending_rss - self.idle_rss) / self.rooms


async def measure_state(ground: Ground, rooms: int, say: Say) -> StateFigures:
    """Raises BenchError, also where any row or state is wrong in the end, and SendError."""
    topic = await ground.create_topic("state", _PARTITIONS)
    site = ground.site(topic, _PARTITIONS, keyed=True, cooldown_ms=_DAY_MS)
    await asyncio.to_thread(site.init)
    now = time.time_ns() // 1_000_000
    await _fill(ground, topic, RollCall(rooms, now - 1000), say)
    say(f"state: {rooms:,} rooms become known and written")
    with site.worker(**AT_ONCE) as worker:
        await asyncio.to_thread(worker.wait_until_ready)
        await wait_until_committed(site, worker, topic, rooms)
        await wait_until_written(worker)
        await asyncio.to_thread(worker.stop)
    recoveries = await _recover_twice(site, "nothing pending", 0, say)
    await asyncio.sleep(_FORGOTTEN_S)
    with site.worker() as worker:
        await asyncio.to_thread(worker.wait_until_ready)
        idle = worker.resident_bytes()
        await _fill(ground, topic, RollCall(rooms, now), say)
        say(f"state: {rooms:,} rooms become pending")
        await wait_until_committed(site, worker, topic, 2 * rooms)
        await _wait_until_pending(worker, rooms)
        pending = worker.resident_bytes()
        worker.kill()
    await asyncio.sleep(_FORGOTTEN_S)
    recoveries += await _recover_twice(site, "all pending", rooms, say)
    await asyncio.sleep(_FORGOTTEN_S)
    say("state: comparing rows and state")
    await verify(site, RollCall(rooms, now).newest())
    return StateFigures(rooms, ground.kind, idle, pending, tuple(recoveries))


async def _fill(ground: Ground, topic: str, roll_call: RollCall, say: Say) -> None:
    await fill(
        ground.brokers,
        topic,
        roll_call,
        keyed=True,
        on_progress=lambda sent: say(f"state: {sent:,} of {roll_call.rooms:,} heartbeats sent"),
    )


async def _recover_twice(site: Site, what: str, pending: int, say: Say) -> list[Recovery]:
    say(f"state: recovery with local files, {what}")
    recoveries = [await _recover(site, f"local files, {what}", pending)]
    await asyncio.sleep(_FORGOTTEN_S)
    say(f"state: recovery from the changelogs alone, {what}")
    await asyncio.to_thread(shutil.rmtree, site.data)
    return [*recoveries, await _recover(site, f"changelogs alone, {what}", pending)]


async def _recover(site: Site, what: str, pending: int) -> Recovery:
    with site.worker() as worker:
        seconds = await asyncio.to_thread(worker.wait_until_ready)
        cpu = worker.cpu_seconds()
        found = int((await asyncio.to_thread(worker.metrics))["heartbeat_rooms_pending"])
        said = re.findall(r"recovered, (\d+) changelog records read in ([\d.]+) s", worker.said())
        worker.kill()
    if found != pending or not said:
        raise BenchError(f"{found:,} rooms are pending after a recovery, instead of {pending:,}")
    records, read = said[-1]
    return Recovery(what, seconds, float(read), int(records), cpu)


async def _wait_until_pending(worker: WorkerProcess, rooms: int) -> None:
    deadline = time.perf_counter() + _PENDING_S
    while (await asyncio.to_thread(worker.metrics))["heartbeat_rooms_pending"] < rooms:
        worker.check()
        if time.perf_counter() > deadline:
            raise BenchError(f"not all rooms are pending after {_PENDING_S:g} s")
        await asyncio.sleep(0.1)
