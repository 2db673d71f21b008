"""A worker for whom no partition is left: ready, and there when one is needed."""

from __future__ import annotations

import pytest

from heartbeat_stream.core.heartbeat import Heartbeat
from tests.support.oracle import Oracle, now_ms
from tests.support.world import World


@pytest.mark.parametrize("source_keyed", [False, True], ids=["unkeyed", "keyed"])
async def test_it_is_ready_and_takes_over(world: World, source_keyed: bool) -> None:
    await world.prepare(partitions=1, source_keyed=source_keyed)
    oracle = Oracle()
    first = await world.start_worker().ready()
    spare = await world.start_worker().ready()
    assert (await spare.metrics())["heartbeat_partitions_owned"] == 0
    await world.send([Heartbeat(7, f"{n}", now_ms(), "first") for n in range(50)], oracle=oracle)
    await oracle.matches(world.table)
    await first.kill()
    await world.send([Heartbeat(7, f"{n}", now_ms(), "then") for n in range(50)], oracle=oracle)
    await oracle.matches(world.table)
    await world.no_lag()
    assert (await spare.get("/health/live"))[0] == 200
    await spare.stopped()
    assert "Traceback" not in spare.log_text()
