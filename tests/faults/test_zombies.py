"""Workers that are frozen beyond their session, and what their thawing may not do.

Times are those of the session: nobody notices a frozen worker before it is over.
"""

from __future__ import annotations

import pytest

from heartbeat_stream.core.heartbeat import Heartbeat
from heartbeat_stream.local.fleet import Fleet
from tests.support.faults import needs_kafka
from tests.support.oracle import Oracle, now_ms
from tests.support.verdict import Crash, all_is_right
from tests.support.wait import wait_until_async
from tests.support.worker import Worker
from tests.support.world import World, load

pytestmark = pytest.mark.slow

WHY = "misses a frozen or killed member for many seconds"
COOLDOWN_MS = 3_000
RATE = 3_000
HOTELS, ROOMS_PER_HOTEL = 20, 1_000
#: Of the test in which rows must not be written meanwhile.
LONG_COOLDOWN_MS = 40_000
ROOMS = 2_000


def heartbeats(device: str) -> list[Heartbeat]:
    at = now_ms()
    return [Heartbeat(7, f"room-{number}", at, device, 1) for number in range(ROOMS)]


async def checkpointed(worker: Worker) -> None:
    """Wait until what it knows by now is durable."""
    before = await worker.metrics()
    await worker.until_metric(
        "heartbeat_checkpoints_total", before["heartbeat_checkpoints_total"] + 2
    )


async def owns_all(world: World, worker: Worker) -> None:
    await worker.until_metric("heartbeat_partitions_owned", world.settings.partitions, 60)


@pytest.mark.parametrize("keyed", [False, True], ids=["unkeyed", "keyed"])
async def test_a_zombie_and_an_owner_that_dies_before_it_writes(world: World, keyed: bool) -> None:
    """The owner has only made newer state durable. The zombie thaws and is all that is left."""
    needs_kafka(world, WHY)
    await world.prepare(source_keyed=keyed, cooldown_ms=LONG_COOLDOWN_MS, buffer_window_ms=100)
    oracle = Oracle()
    crashes: list[Crash] = []
    zombie = await world.start_worker().ready()
    await world.send(heartbeats("written"), oracle=oracle)
    await zombie.until_metric("heartbeat_rows_written_total", ROOMS)
    await checkpointed(zombie)
    # Something is pending in the zombie that the owner will know a newer version of.
    await world.send(heartbeats("of the zombie"), oracle=oracle)
    await zombie.until_metric("heartbeat_rooms_pending", ROOMS)
    begins = Crash.now()
    zombie.freeze()
    owner = await world.start_worker().ready()
    await owns_all(world, owner)
    await world.send(heartbeats("of the owner"), oracle=oracle)
    await owner.until_metric("heartbeat_rooms_pending", ROOMS)
    await world.no_lag()
    await checkpointed(owner)
    assert {row.device_id for row in (await world.table.rows()).values()} == {"written"}
    zombie.thaw()
    await owner.kill()
    crashes += [begins.until_now(), Crash.now()]
    await zombie.ready(90)
    await owns_all(world, zombie)
    await all_is_right(world, oracle, crashes=crashes)
    assert {row.device_id for row in (await world.table.rows()).values()} == {"of the owner"}


async def test_zombies_under_load(world: World) -> None:
    """Two workers, frozen in turn for longer than a session, three times."""
    needs_kafka(world, WHY)
    await world.prepare(cooldown_ms=COOLDOWN_MS)
    crashes: list[Crash] = []
    workers = [world.start_worker(), world.start_worker()]
    for worker in workers:
        await worker.ready()
    async with load(world, Fleet(HOTELS, ROOMS_PER_HOTEL), RATE) as running:
        for turn in range(3):
            frozen, other = workers[turn % 2], workers[1 - turn % 2]
            await frozen.until_metric("heartbeat_rows_written_total", 1_000, 60)
            begins = Crash.now()
            frozen.freeze()
            await owns_all(world, other)
            before = (await other.metrics())["heartbeat_rows_written_total"]
            await other.until_metric("heartbeat_rows_written_total", before + 5_000, 60)
            await checkpointed(other)
            frozen.thaw()
            await wait_until_async(lambda f=frozen, o=other: shared(world, f, o), 60, what="shared")
            crashes.append(begins.until_now())
    await all_is_right(world, running.oracle, crashes=crashes)


async def shared(world: World, *workers: Worker) -> bool:
    """Whether all are ready, each with partitions of its own."""
    if not all([await worker.is_ready() for worker in workers]):
        return False
    owned = [(await worker.metrics())["heartbeat_partitions_owned"] for worker in workers]
    return all(owned) and sum(owned) == world.settings.partitions


async def test_a_room_that_falls_silent_when_its_owner_is_killed(world: World) -> None:
    """Nothing comes any more that could remind anybody of it: its state alone must do."""
    needs_kafka(world, WHY)
    await world.prepare(cooldown_ms=LONG_COOLDOWN_MS // 4, buffer_window_ms=100)
    oracle = Oracle()
    worker = await world.start_worker().ready()
    await world.send(heartbeats("first"), oracle=oracle)
    await worker.until_metric("heartbeat_rows_written_total", ROOMS)
    await world.send(heartbeats("last"), oracle=oracle)
    await worker.until_metric("heartbeat_rooms_pending", ROOMS)
    await world.no_lag()
    await checkpointed(worker)
    assert {row.device_id for row in (await world.table.rows()).values()} == {"first"}
    await worker.kill()
    await world.start_worker().ready()
    await all_is_right(world, oracle, crashes=[Crash.now()])
