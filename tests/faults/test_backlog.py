"""A backlog that is worked off at once, and memory that levels off."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from heartbeat_stream.core.heartbeat import Heartbeat
from heartbeat_stream.local.fleet import Fleet
from heartbeat_stream.local.record_sender import open_sender
from tests.support.brokers import on_kafka
from tests.support.oracle import Oracle, now_ms
from tests.support.verdict import all_is_right
from tests.support.worker import Worker
from tests.support.world import World

pytestmark = [on_kafka, pytest.mark.slow]

BACKLOG = 500_000
BATCH = 10_000
#: A worker that does nothing has 90 MiB; the rest is for 20,000 rooms and what is under way.
BACKLOG_MIB = 450

#: Rooms that come for the first time, again and again, and how many of them memory may keep.
NEW_ROOMS = 15_000
KEPT_ROOMS = 5_000
WAVES_BEFORE, WAVES = 4, 6
#: Kept in memory, the rooms of the later waves would take 36 MiB.
GROWTH_MIB = 25


def resident_mib(worker: Worker) -> float:
    status = Path(f"/proc/{worker.pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) / 1024


@pytest.mark.parametrize("keyed", [False, True], ids=["unkeyed", "keyed"])
async def test_half_a_million_heartbeats_of_twenty_thousand_rooms(
    world: World, keyed: bool
) -> None:
    await world.prepare(source_keyed=keyed, cooldown_ms=1_000)
    fleet, oracle = Fleet(20, 1_000, keyed=keyed), Oracle()
    async with open_sender(world.bootstrap_servers, world.topic, {}) as sender:
        for _ in range(BACKLOG // BATCH):
            await sender.send(fleet.generate(now_ms(), BATCH), now_ms())
        await sender.flush()
    oracle.accept(fleet.oracle().values())
    most = 0.0
    worker = await world.start_worker().ready()

    async def all_taken_in() -> bool:
        nonlocal most
        most = max(most, resident_mib(worker))
        return (await worker.metrics())["heartbeat_records_total"] >= BACKLOG

    await worker.until(all_taken_in, 120, what="the backlog is taken in")
    await all_is_right(world, oracle)
    assert most < BACKLOG_MIB
    assert (await worker.metrics())["heartbeat_records_total"] == BACKLOG


async def test_memory_levels_off(world: World) -> None:
    """While new rooms keep coming, of which the tables know all and memory the latest."""
    await world.prepare(
        source_keyed=True,
        buffer_window_ms=0,
        cooldown_ms=0,
        checkpoint_ms=200,
        cache_rooms=KEPT_ROOMS,
        rocksdb_cache_mb=4,
    )
    worker = await world.start_worker().ready()
    written = 0
    waves = new_rooms()
    for _ in range(WAVES_BEFORE):
        written = await wave(world, worker, next(waves), written)
    before = resident_mib(worker)
    for _ in range(WAVES):
        written = await wave(world, worker, next(waves), written)
    grown = resident_mib(worker) - before
    assert grown < GROWTH_MIB, f"grown by {grown:.0f} MiB, from {before:.0f}"


def new_rooms() -> Iterator[list[Heartbeat]]:
    for number in count():
        yield [Heartbeat(number, f"{room}", now_ms(), "new") for room in range(NEW_ROOMS)]


async def wave(world: World, worker: Worker, rooms: list[Heartbeat], written: int) -> int:
    """Send these, wait until they are written and memory has let go of them."""
    await world.send(rooms)
    written += len(rooms)
    await worker.until_metric("heartbeat_rows_written_total", written, 60)

    async def forgotten() -> bool:
        return (await worker.metrics())["heartbeat_rooms_in_memory"] <= KEPT_ROOMS + 1_000

    await worker.until(forgotten, 60, what="memory has let go of them")
    return written
