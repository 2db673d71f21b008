"""Local state that is damaged, is not ours, or lies on a disk that is full."""

from __future__ import annotations

import contextlib
import random
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from heartbeat_stream.core.heartbeat import Heartbeat
from heartbeat_stream.local.fleet import Fleet
from tests.support.brokers import on_kafka
from tests.support.damage import DAMAGES, garbage_in_log, garbage_in_sst, move_into_ssts
from tests.support.oracle import Oracle, now_ms
from tests.support.worker import Worker
from tests.support.world import World, load

RATE = 2_000
HOTELS, ROOMS_PER_HOTEL = 40, 100
ROOMS = HOTELS * ROOMS_PER_HOTEL
#: Longer than a restart takes: whoever forgets when a room was written writes it too early.
COOLDOWN_MS = 8_000
DISCARDED = "is discarded and rebuilt from the changelog"


def databases(world: World) -> list[Path]:
    """Where the only worker keeps its tables, a database for each partition of each."""
    tables = world.settings.data_dir / world.settings.app_id / "worker-0" / "v1" / "tables"
    found = sorted(path for path in tables.iterdir() if path.is_dir())
    assert len(found) == 2 * world.settings.partitions
    return found


@on_kafka
@pytest.mark.slow
@pytest.mark.parametrize("shift", [0, len(DAMAGES) // 2], ids=["one way", "the other way"])
async def test_damaged_state_is_rebuilt_under_load(world: World, shift: int) -> None:
    """A database for each damage: half of them in the one table, and half in the other."""
    partitions = len(DAMAGES) // 2
    await world.prepare(cooldown_ms=COOLDOWN_MS, buffer_window_ms=100, partitions=partitions)
    fleet = Fleet(hotels=HOTELS, rooms_per_hotel=ROOMS_PER_HOTEL)
    worker = await world.start_worker().ready()
    async with load(world, fleet, RATE) as running:
        await worker.until_metric("heartbeat_rows_written_total", ROOMS)
        await worker.stopped()
        damages = DAMAGES[shift:] + DAMAGES[:shift]
        for database, damage in zip(databases(world), damages, strict=True):
            move_into_ssts(database)
            damage(database)
        worker = await world.start_worker().ready()
        await worker.until_metric("heartbeat_rows_written_total", ROOMS)
    await running.oracle.matches(world.table)
    await world.table.keeps_cooldown(COOLDOWN_MS, crashes=0)
    await world.no_lag()
    assert len(await world.dead_letters()) == fleet.counts.broken.total()
    await worker.stopped()
    log = worker.log_text()
    assert "Traceback" not in log
    for database, damage in zip(databases(world), damages, strict=True):
        if damage is not garbage_in_log:  # the ordinary end of a machine that lost power
            assert f"local state in {database} cannot be used" in log, damage
    # And the state that was rebuilt is sound.
    worker = await world.start_worker().ready()
    await worker.stopped()
    assert DISCARDED not in worker.log_text()


@on_kafka
@pytest.mark.slow
async def test_state_that_is_damaged_under_a_running_worker(world: World) -> None:
    """It ends, having lost nothing, rather than take a room for one that it does not know."""
    rooms = [f"{number}" for number in range(20_000)]
    # With nothing in memory, and far more in the files than the cache of what was read of them.
    noise = random.Random(1)
    await world.prepare(cooldown_ms=0, buffer_window_ms=0, cache_rooms=1, rocksdb_cache_mb=1)
    now, oracle = now_ms(), Oracle()
    worker = await world.start_worker().ready()
    await world.send(
        [Heartbeat(7, room, now, noise.randbytes(120).hex()) for room in rooms], oracle=oracle
    )
    await oracle.matches(world.table)
    await worker.stopped()
    worker = await world.start_worker().ready()  # opening a database puts its log into a file
    for database in databases(world):
        garbage_in_sst(database)
    older = [Heartbeat(7, room, now - 1, "older") for room in rooms]
    await world.send(older)
    assert await worker.ended() == 1
    assert "Traceback" not in worker.log_text()
    assert "cannot read the local state in" in worker.log_text()
    worker = await world.start_worker().ready()
    await world.send([Heartbeat(7, "last", now_ms())], oracle=oracle)
    oracle.accept(older)
    await oracle.matches(world.table)
    await world.no_lag()
    assert (await worker.metrics())["heartbeat_stale_total"] == len(rooms)
    await worker.stopped()


@contextmanager
def small_disk(directory: Path, megabytes: int) -> Iterator[None]:
    """A disk of its own at this directory."""
    directory.mkdir(parents=True)
    size = f"size={megabytes}m"
    mounting = ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(directory)]
    mounted = subprocess.run(mounting, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"nobody may mount a disk here: {mounted.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


def fill(directory: Path) -> Path:
    """Leave no room at all on the disk; the file that takes it."""
    ballast = directory / "ballast"
    with ballast.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    return ballast


@on_kafka
@pytest.mark.slow
async def test_a_full_disk_under_load(world: World) -> None:
    await world.prepare(cooldown_ms=COOLDOWN_MS, buffer_window_ms=100)
    fleet = Fleet(hotels=HOTELS, rooms_per_hotel=ROOMS_PER_HOTEL)
    disk = world.settings.data_dir
    with small_disk(disk, 48):
        worker = await world.start_worker().ready()
        async with load(world, fleet, RATE) as running:
            await worker.until_metric("heartbeat_rows_written_total", ROOMS)
            ballast = fill(disk)
            await worker.until(
                lambda: says(worker, "No space left on device"), what="it says that it is full"
            )
            before = await world.committed()
            figures = await worker.metrics()
            # Heartbeats are taken in and rows are written, but nothing is committed.
            await worker.until_metric(
                "heartbeat_records_total", figures["heartbeat_records_total"] + 5 * RATE
            )
            for probe in ("live", "ready"):
                assert (await worker.get(f"/health/{probe}"))[0] == 200
            assert await world.committed() == before
            done = (await worker.metrics())["heartbeat_checkpoints_total"]
            ballast.unlink()
            await worker.until_metric("heartbeat_checkpoints_total", done + 3)
            # Once more, and now it does not live to see the end of it.
            fill(disk)
            done = (await worker.metrics())["heartbeat_rows_written_total"]
            await worker.until_metric("heartbeat_rows_written_total", done + ROOMS)
            await worker.kill()
            worker = world.start_worker()
            assert await worker.ended() == 1
            assert "Traceback" not in worker.log_text()
            assert "No space left on device" in worker.log_text()
            ballast.unlink()
            worker = await world.start_worker().ready()
        await running.oracle.matches(world.table)
        await world.no_lag()
        await world.table.keeps_cooldown(COOLDOWN_MS, crashes=1)
        assert len(await world.dead_letters()) >= fleet.counts.broken.total()
        await worker.stopped()
        assert DISCARDED not in worker.log_text()


async def says(worker: Worker, text: str) -> bool:
    return text in worker.log_text()
