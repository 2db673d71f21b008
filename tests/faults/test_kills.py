"""kill -9 of a worker again and again, at instants that a seed draws, with its files and without.

Six kills in each test, twenty with HEARTBEAT_TEST_FULL=1.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from heartbeat_stream.local.fleet import Fleet
from tests.support.faults import FULL, lose_files, needs_kafka
from tests.support.verdict import Crash, all_is_right
from tests.support.world import World, load

pytestmark = pytest.mark.slow

KILLS = 20 if FULL else 6
COOLDOWN_MS = 3_000
HOTELS, ROOMS_PER_HOTEL = 20, 1_000
RATE = 4_000
#: A worker lives for so long at most after it is ready, or after its start where it is not.
LONGEST_LIFE_S = 3.0


@pytest.mark.parametrize(
    ("files", "keyed"),
    [
        ("kept", False),
        ("removed", True),
        ("now and then removed", False),
        ("half removed", False),
        ("half removed", True),
    ],
    ids=lambda value: {False: "unkeyed", True: "keyed"}.get(value, value),
)
async def test_kill_again_and_again(world: World, files: str, keyed: bool) -> None:
    needs_kafka(world, "misses a killed member for many seconds")
    seed = f"{files} {keyed}"
    chance = random.Random(seed)
    await world.prepare(source_keyed=keyed, cooldown_ms=COOLDOWN_MS)
    fleet = Fleet(HOTELS, ROOMS_PER_HOTEL, keyed=keyed)
    crashes: list[Crash] = []
    worker = world.start_worker()
    async with load(world, fleet, RATE) as running:
        for number in range(KILLS):
            # Now and then it does not even live to be ready.
            if number % 4 != 3:
                await worker.ready()
            await asyncio.sleep(chance.uniform(0, LONGEST_LIFE_S))
            await worker.kill()
            crashes.append(Crash.now())
            lose_files(world, files, chance)
            worker = world.start_worker()
        await worker.ready()
        await worker.until_metric("heartbeat_rows_written_total", 1)
    await all_is_right(world, running.oracle, crashes=crashes)
