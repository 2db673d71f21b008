"""A database that goes away, and comes back."""

import pytest

from heartbeat_stream.local.fleet import Fleet
from heartbeat_stream.local.postgres import PostgresServer
from tests.support.world import World, load

COOLDOWN_MS = 2_000
ROOMS = 200


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before the start", "while running"])
async def test_database_down_then_back(world: World, when: str) -> None:
    with PostgresServer() as server:
        await world.prepare(database_url=server.url, cooldown_ms=COOLDOWN_MS)
        if when == "before the start":
            server.stop()
        worker = await world.start_worker().ready()
        fleet = Fleet(hotels=2, rooms_per_hotel=ROOMS // 2)
        async with load(world, fleet, rate=1_000) as running:
            if when == "while running":
                await worker.until_metric("heartbeat_rows_written_total", 2 * ROOMS)
                server.stop("immediate")
            # Ingest goes on, and so do checkpoints, well beyond the first retries.
            figures = await worker.metrics()
            await worker.until_metric(
                "heartbeat_checkpoints_total", figures["heartbeat_checkpoints_total"] + 6
            )
            figures = await worker.until_metric(
                "heartbeat_records_total", figures["heartbeat_records_total"] + 3_000
            )
            assert figures["heartbeat_rooms_pending"] == ROOMS
            assert (await worker.get("/health/live"))[0] == 200
            assert (await worker.get("/health/ready"))[0] == 200
            server.start()
        await running.oracle.matches(world.table)
        # A write of which the server's end left unknown whether it counts is done again.
        await world.table.keeps_cooldown(COOLDOWN_MS, crashes=1 if when == "while running" else 0)
        await world.no_lag()
        assert len(await world.dead_letters()) == fleet.counts.broken.total()
        await worker.stopped()
