"""The system clock steps an hour back and forth, under a running worker and across its restarts.

Only the workers' clock: libfaketime stands between them and the system. The devices and the
database keep the right time.
"""

from __future__ import annotations

import glob
from collections import Counter
from pathlib import Path

import pytest

from heartbeat_stream.local.fleet import Fleet
from tests.support.brokers import on_embedded
from tests.support.oracle import Attempt
from tests.support.worker import Worker
from tests.support.world import World, load

pytestmark = [pytest.mark.services, pytest.mark.slow]

HOUR_S = 3_600
RATE = 1_000
ROOMS = 500
COOLDOWN_MS = 4_000
#: Far less than an hour, and more than any machine is late.
LATE_MS = 120_000


class SystemClock:
    """What the workers of a world take for the system's clock."""

    def __init__(self, world: World) -> None:
        libraries = glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")  # noqa: PTH207
        assert libraries, "libfaketime is missing: install Debian's package libfaketime"
        self._file = world.directory / "clock"
        self.is_off_by(0)
        world.environment.update(
            LD_PRELOAD=libraries[0],
            FAKETIME_TIMESTAMP_FILE=str(self._file),
            FAKETIME_CACHE_DURATION="1",  # seconds
            # As it is: only wall time steps.
            DONT_FAKE_MONOTONIC="1",
            FAKETIME_DONT_FAKE_MONOTONIC="1",
        )

    def is_off_by(self, seconds: int) -> None:
        new = Path(f"{self._file}.new")
        new.write_text(f"{seconds:+d}")
        new.replace(self._file)  # never half a number


async def stepped(worker: Worker, times: int) -> bool:
    return worker.log_text().count("the system clock stepped by") == times


async def rows_are_written(worker: Worker) -> None:
    """Every room is written once more."""
    written = (await worker.metrics())["heartbeat_rows_written_total"]
    await worker.until_metric("heartbeat_rows_written_total", written + ROOMS, LATE_MS / 1000)


def longest_gap(attempts: list[Attempt]) -> float:
    """The most milliseconds between two writes of one room."""
    last: dict[tuple[int, str], float] = {}
    longest = 0.0
    for attempt in attempts:
        longest = max(longest, attempt.at_ms - last.get(attempt.room, attempt.at_ms))
        last[attempt.room] = attempt.at_ms
    return longest


@on_embedded
async def test_under_a_running_worker(world: World) -> None:
    clock = SystemClock(world)
    await world.prepare(cooldown_ms=COOLDOWN_MS)
    worker = await world.start_worker().ready()
    fleet = Fleet(hotels=5, rooms_per_hotel=ROOMS // 5)
    async with load(world, fleet, RATE) as running:
        await worker.until_metric("heartbeat_rows_written_total", ROOMS)
        for step, off_by in enumerate((-HOUR_S, 0, HOUR_S, -HOUR_S, 0)):
            clock.is_off_by(off_by)
            await worker.until(lambda: stepped(worker, step + 1), what="it has noticed the step")  # noqa: B023
            await rows_are_written(worker)
    await running.oracle.matches(world.table)
    await world.table.keeps_cooldown(COOLDOWN_MS, crashes=0)
    assert longest_gap(await world.table.attempts()) < COOLDOWN_MS + LATE_MS
    await world.no_lag()
    dead = Counter(dict(letter.headers)["reason"].decode() for letter in await world.dead_letters())
    assert dead == {str(reason): count for reason, count in fleet.counts.broken.items()}
    await worker.stopped()
    assert await stepped(worker, 5)


@on_embedded
async def test_across_restarts(world: World) -> None:
    clock = SystemClock(world)
    await world.prepare(cooldown_ms=COOLDOWN_MS)
    fleet = Fleet(hotels=5, rooms_per_hotel=ROOMS // 5)
    worker = await world.start_worker().ready()
    async with load(world, fleet, RATE) as running:
        await worker.until_metric("heartbeat_rows_written_total", ROOMS)
        for off_by, end in (
            (-HOUR_S, Worker.stopped),
            (0, Worker.kill),
            (HOUR_S, Worker.stopped),
            (0, Worker.kill),
        ):
            await end(worker)
            clock.is_off_by(off_by)
            worker = await world.start_worker().ready()
            await rows_are_written(worker)
    await running.oracle.matches(world.table)
    # A crash may cost a write, and so may a clock that runs ahead across a restart: for the worker,
    # the cooldown is over then.
    await world.table.keeps_cooldown(COOLDOWN_MS, crashes=3)
    assert longest_gap(await world.table.attempts()) < COOLDOWN_MS + LATE_MS
    await world.no_lag()
    reasons = {dict(letter.headers)["reason"] for letter in await world.dead_letters()}
    assert reasons == {str(reason).encode() for reason in fleet.counts.broken}
    await worker.stopped()
