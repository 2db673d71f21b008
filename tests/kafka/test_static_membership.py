"""HEARTBEAT_GROUP_INSTANCE_ID: a worker that restarts moves nobody's partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from heartbeat_stream.core.heartbeat import Heartbeat
from heartbeat_stream.local.process import free_port
from heartbeat_stream.local.stack import EmbeddedStack
from tests.support.oracle import Oracle, now_ms
from tests.support.worker import Worker
from tests.support.world import Cluster, World, running_workers

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

# A restart takes 4 s here, with a loaded machine's share of that on top.
LONG_SESSION_MS = 30_000
SHORT_SESSION_MS = 6_000
ROOMS = 40


class Share(NamedTuple):
    """What a worker says of itself: the partitions it owns, the rebalances it has seen."""

    partitions: list[int]
    rebalances: float


async def share(worker: Worker) -> Share:
    _, body = await worker.get("/health/ready")
    partitions: list[int] = msgspec.json.decode(body)["partitions"]
    return Share(partitions, (await worker.metrics())["heartbeat_rebalances_total"])


class Fleet:
    """Two workers with fixed names and addresses, and the heartbeats of some rooms."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.oracle = Oracle()
        self.ports = [free_port(), free_port()]

    def start(self, number: int, port: int | None = None) -> Worker:
        return self.world.start_worker(
            group_instance_id=f"worker-{number}",
            web_port=port or self.ports[number],
            data_dir=self.world.directory / f"data-{number}",
        )

    async def start_both(self) -> tuple[Worker, Worker]:
        """Both workers, once the partitions are divided between them."""
        first = await self.start(0).ready()
        second = await self.start(1).ready()
        await self.until_divided(first, second)
        return first, second

    async def until_divided(self, *workers: Worker) -> None:
        async def divided() -> bool:
            shares = [await share(worker) for worker in workers]
            owned = sorted(p for one in shares for p in one.partitions)
            return owned == list(range(self.world.settings.partitions)) and all(
                [
                    one.partitions and await w.is_ready()
                    for one, w in zip(shares, workers, strict=True)
                ]
            )

        await workers[0].until(divided, 60, what="every partition belongs to one worker")

    async def send(self) -> None:
        """A heartbeat of every room, which lie on all partitions."""
        at = now_ms()
        await self.world.send(
            [Heartbeat(7, f"room-{number}", at, "d", 1) for number in range(ROOMS)],
            oracle=self.oracle,
        )


@pytest.fixture
def fleet(apache_kafka: Cluster, stack: EmbeddedStack, tmp_path: Path) -> Iterator[Fleet]:
    with running_workers(tmp_path) as workers:
        yield Fleet(World(apache_kafka, stack.postgres.url, tmp_path, workers))


@pytest.mark.parametrize("number", [0, 1], ids=["leader", "follower"])
@pytest.mark.parametrize("end", [Worker.stopped, Worker.kill], ids=["sigterm", "sigkill"])
async def test_a_restart_within_the_session_moves_nothing(
    fleet: Fleet, end: Any, number: int
) -> None:
    await fleet.world.prepare(session_timeout_ms=LONG_SESSION_MS, cooldown_ms=100)
    workers = list(await fleet.start_both())
    other = workers[1 - number]
    before, others = await share(workers[number]), await share(other)
    await fleet.send()
    await end(workers[number])
    await fleet.send()  # half of it is for a worker that is away

    back = await fleet.start(number).ready()

    assert (await share(back)).partitions == before.partitions
    await fleet.send()
    await fleet.oracle.matches(fleet.world.table)
    assert await share(other) == others


async def test_a_worker_that_stays_away_is_replaced_after_the_session(fleet: Fleet) -> None:
    await fleet.world.prepare(session_timeout_ms=SHORT_SESSION_MS)
    first, second = await fleet.start_both()
    await fleet.send()
    await first.stopped()
    await fleet.send()

    await fleet.until_divided(second)

    await fleet.oracle.matches(fleet.world.table)


async def test_a_worker_under_a_new_address_is_a_new_member(fleet: Fleet) -> None:
    """The assignment of before names the old address, which Faust does not put up with."""
    await fleet.world.prepare(session_timeout_ms=SHORT_SESSION_MS)
    first, second = await fleet.start_both()
    await first.stopped()

    moved = await fleet.start(0, port=free_port()).ready()

    await fleet.until_divided(moved, second)
    await asyncio.gather(fleet.send())
    await fleet.oracle.matches(fleet.world.table)
