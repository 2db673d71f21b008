"""Kills and rebalances while traffic is sent: the same for every job that judges."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tests.support.streams import no_lag_of_jobs
from tests.support.worker import Worker
from tests.support.world import World

__all__ = ["SENT_MAX", "SENT_PER_S", "kills_and_rebalances", "kills_one_after_the_other"]

#: The most that is sent meanwhile, for a sequence that is not to be over before its last kill.
SENT_MAX = 100_000
SENT_PER_S = 1_000

_JUDGED = "heartbeat_judged_total"
#: On a busy machine much is left to be read when the last worker is at its work.
_READ_S = 180.0


async def kills_and_rebalances(
    world: World, sending: Callable[[asyncio.Event], Coroutine[Any, Any, object]]
) -> Worker:
    """Workers come and are killed while traffic is sent; then all is read.

    ``sending`` sends until the event is set. The last worker, which still runs.
    """
    enough = asyncio.Event()
    first = await world.start_worker().ready()
    task = asyncio.create_task(sending(enough))
    await first.until_metric(_JUDGED, 2_000)
    second = await world.start_worker().ready()  # half of the partitions move
    await second.until_metric(_JUDGED, 500)
    await first.kill()
    third = await world.start_worker().ready()
    await second.kill()
    await third.until_metric(_JUDGED, 1_000, 60)
    enough.set()
    await task
    await no_lag_of_jobs(world, _READ_S)
    return third


async def kills_one_after_the_other(
    world: World, sending: Coroutine[Any, Any, object], kills: int
) -> Worker:
    """The same with one worker at a time, killed so often."""
    worker = await world.start_worker().ready()
    task = asyncio.create_task(sending)
    for _ in range(kills):
        await worker.until_metric(_JUDGED, 500, 60)
        await worker.kill()
        worker = await world.start_worker().ready()
    await task
    await no_lag_of_jobs(world, _READ_S)
    return worker
