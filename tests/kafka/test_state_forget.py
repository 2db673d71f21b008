"""`state forget`: a room that a wrong clock has frozen takes heartbeats again."""

from __future__ import annotations

import pytest

from heartbeat_stream.core.heartbeat import Heartbeat
from tests.support.command import run_command
from tests.support.oracle import Oracle, now_ms
from tests.support.world import World

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

ROOM = "大会议室: 1"
FORGET = ("state", "forget", "7", ROOM)


async def test_a_frozen_room(world: World) -> None:
    await world.prepare(max_future_ms=10_000_000_000)
    oracle = Oracle()
    first = await world.start_worker().ready()
    frozen = Heartbeat(7, ROOM, now_ms() + 3_600_000, "wrong clock")
    others = [Heartbeat(7, f"{number}", now_ms()) for number in range(50)]
    await world.send([frozen, *others], oracle=oracle)
    await oracle.matches(world.table)
    await world.no_lag()
    refused = await run_command(world, *FORGET, "--yes", code=1)
    assert f"http://127.0.0.1:{first.port} on " in refused.err
    seen = await run_command(world, *FORGET, "--dry-run")
    assert f"it would be refused now: workers of {world.settings.app_id} are running" in seen.out
    assert f"hotel 7, room {ROOM} leaves the tables" in seen.out
    await first.stopped()

    plan = await run_command(world, *FORGET, "--row", "--dry-run")
    assert f"hotel 7, room {ROOM} leaves the tables" in plan.out
    assert f"its row in {world.settings.table} is deleted" in plan.out
    assert (7, ROOM) in await world.table.rows()
    unknown = await run_command(world, "state", "forget", "7", "nobody", "--yes", code=1)
    assert "do not know hotel 7, room nobody" in unknown.err
    assert "With --row" in unknown.err
    unknown = await run_command(world, "state", "forget", "7", "nobody", "--row", "--yes", code=1)
    assert f"there is no row of it in {world.settings.table}" in unknown.err

    await run_command(world, *FORGET, "--row", "--yes")
    del oracle.newest[7, ROOM]
    assert oracle.differences(await world.table.rows()) == []
    # Local files of before do not bring it back, and the others are not touched.
    worker = await world.start_worker(max_future_ms=60_000).ready()
    right = Heartbeat(7, ROOM, now_ms(), "right clock")
    await world.send([right], oracle=oracle)
    await oracle.matches(world.table)
    assert len(await world.table.attempts()) == len(others) + 2
    await world.no_lag()
    await worker.stopped()

    # Without --row the database keeps it.
    kept = await run_command(world, *FORGET, "--yes")
    assert "removed from the tables" in kept.out
    assert "is still there" in kept.out
    assert "--row" in kept.out
    assert (await world.table.rows())[7, ROOM] == right
    again = await run_command(world, *FORGET, "--yes", code=1)
    assert "do not know" in again.err

    # The tables have forgotten it, but the row is still there.
    plan = await run_command(world, *FORGET, "--row", "--dry-run")
    assert f"the tables do not know hotel 7, room {ROOM} (any more)" in plan.out
    assert f"its row in {world.settings.table} is deleted" in plan.out
    assert (7, ROOM) in await world.table.rows()
    late = await run_command(world, *FORGET, "--row", "--yes")
    assert "1 row was deleted" in late.out
    assert (7, ROOM) not in await world.table.rows()
