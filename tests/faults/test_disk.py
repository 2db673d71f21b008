"""Local state that is damaged, is not ours, or lies on a disk that is full."""

from __future__ import annotations

from pathlib import Path

import pytest

from heartbeat_stream.local.fleet import Fleet
from tests.support.brokers import on_kafka
from tests.support.damage import DAMAGES, garbage_in_log, move_into_ssts
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
