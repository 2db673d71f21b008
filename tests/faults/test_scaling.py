"""Workers come and go under load, several at once."""

from __future__ import annotations

import pytest

from heartbeat_stream.core.partition import partition_for
from heartbeat_stream.local.fleet import Fleet
from tests.support.faults import needs_kafka
from tests.support.readiness import Readiness, readiness
from tests.support.verdict import all_is_right, crashes_told
from tests.support.wait import wait_until_async
from tests.support.worker import Worker
from tests.support.world import PARTITIONS, World, load

pytestmark = pytest.mark.slow

HOTELS, ROOMS_PER_HOTEL = 20, 1_000
RATE = 3_000
COOLDOWN_MS = 3_000
#: Joining, handing over and recovering take a second or two; the rest is for a busy machine.
REBALANCED_WITHIN_S = 30.0
STARTED = "web view on port"


class Crew:
    """The workers that are meant to be there."""

    def __init__(self, world: World, ready: Readiness, first: Worker) -> None:
        self._world = world
        self._ready = ready
        self.present = [first]
        self.all = [first]
        self._leaving: list[Worker] = []

    def joins(self) -> Worker:
        worker = self._ready.watch(self._world.start_worker())
        self.present.append(worker)
        self.all.append(worker)
        return worker

    def leaves(self, worker: Worker) -> None:
        worker.terminate()
        self.present.remove(worker)
        self._leaving.append(worker)

    async def settled(self) -> None:
        """Those that are meant to be there, and nobody else, share the work within the bound."""
        await self._ready.settled(self.present, PARTITIONS, REBALANCED_WITHIN_S)
        while self._leaving:
            worker = self._leaving.pop()
            assert await worker.ended() == 0, worker.log_end()
        for worker in self.present:
            before = (await worker.metrics())["heartbeat_rows_written_total"]
            await worker.until_metric("heartbeat_rows_written_total", before + 200)


def room_of_each_partition(fleet: Fleet) -> dict[int, bytes]:
    return {partition_for(key, PARTITIONS): key for key in fleet.oracle()}


@pytest.mark.parametrize("keyed", [False, True], ids=["unkeyed", "keyed"])
async def test_one_three_two_one_three(world: World, keyed: bool) -> None:
    needs_kafka(world, "serves several workers badly")
    await world.prepare(source_keyed=keyed, cooldown_ms=COOLDOWN_MS)
    fleet = Fleet(HOTELS, ROOMS_PER_HOTEL, keyed=keyed)
    first = await world.start_worker().ready()
    async with load(world, fleet, RATE) as running:
        await first.until_metric("heartbeat_rows_written_total", 5_000)
        async with readiness(room_of_each_partition(fleet), first) as ready:
            crew = Crew(world, ready, first)
            crew.joins()
            crew.joins()
            await crew.settled()  # three
            crew.leaves(crew.present[0])
            crew.leaves(crew.present[0])
            crew.joins()
            await crew.settled()  # two
            crew.leaves(crew.present[0])
            hasty = crew.joins()
            await wait_until_async(lambda: STARTED in hasty.log_text(), 30, what=STARTED)
            crew.leaves(hasty)  # while it joins
            await crew.settled()  # one
            crew.joins()
            crew.joins()
            await crew.settled()  # three
    crashes = [crash for worker in crew.all for crash in crashes_told(worker.log_text())]
    await all_is_right(world, running.oracle, crashes=crashes)
    for worker in crew.all:
        assert "Traceback" not in worker.log_text(), worker.log_end()
