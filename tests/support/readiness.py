"""Whether ``/health/ready`` tells the truth, looked at again and again on every worker.

A worker that says twice in a row that it is ready, with no rebalance in between, has had the same
partitions all the time, answers for the rooms in them out of its own state, and is the only one.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import NamedTuple
from urllib.parse import quote

import aiohttp

from tests.support.wait import wait_until_async
from tests.support.worker import Worker

__all__ = ["Readiness", "readiness"]

_EVERY_S = 0.05
#: A worker that answers no more than this often could give a partition up and get it back between.
_CLOSE_S = 1.0
#: Has a worker answer for itself, or not at all.
_NOT_PASSED_ON = {"X-Heartbeat-Routed": "1"}


class Look(NamedTuple):
    """One answer: when it was asked for and came, and what it said."""

    asked: float
    answered: float
    ready: bool
    partitions: frozenset[int]
    rebalances: int

    def claims_until(self, later: Look) -> frozenset[int]:
        """What the worker has had all the time between two answers, as it says."""
        steady = (
            self.ready
            and later.ready
            and self.rebalances == later.rebalances
            and later.answered - self.asked < _CLOSE_S
        )
        return self.partitions if steady else frozenset()


class Readiness:
    """The answers of all workers that are watched; made by :func:`readiness`.

    rooms: of each partition the key of a room that stands in the tables.
    """

    def __init__(self, rooms: Mapping[int, bytes]) -> None:
        self._rooms = rooms
        self._looks: dict[str, list[Look]] = {}
        self._watches: list[asyncio.Task[None]] = []
        self.lies: list[str] = []
        self.rooms_asked_for = 0

    def watch(self, worker: Worker) -> Worker:
        """Look at it until it ends."""
        self._looks[worker.name] = []
        self._watches.append(asyncio.create_task(self._watch(worker)))
        return worker

    async def settled(self, workers: list[Worker], partitions: int, seconds: float) -> float:
        """Wait until these are ready and share all partitions; how long that took."""
        started = time.monotonic()

        def shared() -> bool:
            looks = [self._looks[worker.name][-1:] for worker in workers]
            owned = [p for last in looks for look in last if look.ready for p in look.partitions]
            ready = all(last and last[0].ready and last[0].partitions for last in looks)
            return ready and sorted(owned) == list(range(partitions))

        names = ", ".join(worker.name for worker in workers)
        await wait_until_async(shared, seconds, what=f"{names} share all partitions")
        return time.monotonic() - started

    async def _watch(self, worker: Worker) -> None:
        looks = self._looks[worker.name]
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session:
            while worker.running:
                try:
                    if worker.port:
                        looks.append(await self._look(session, worker))
                        await self._ask_for_rooms(session, worker, looks)
                except (aiohttp.ClientError, OSError):
                    pass
                await asyncio.sleep(_EVERY_S)

    async def _look(self, session: aiohttp.ClientSession, worker: Worker) -> Look:
        asked = time.monotonic()
        async with session.get(f"http://127.0.0.1:{worker.port}/health/ready") as response:
            said = json.loads(await response.read())
            ready = response.status == 200
        look = Look(
            asked,
            time.monotonic(),
            ready,
            frozenset(said["partitions"]),
            said.get("rebalances", 0),
        )
        if ready != all(said[part] for part in ("assigned", "recovered", "running")):
            self.lies.append(f"{worker.name} answered {response.status} with {said}")
        return look

    async def _ask_for_rooms(
        self, session: aiohttp.ClientSession, worker: Worker, looks: list[Look]
    ) -> None:
        """A room of each partition that it claims: it must know it, if it still claims it after."""
        before, unknown = looks[-1], []
        for partition in before.partitions if before.ready else ():
            path = f"/table/latest/{quote(self._rooms[partition], safe='')}/"
            url = f"http://127.0.0.1:{worker.port}{path}"
            async with session.get(url, headers=_NOT_PASSED_ON) as response:
                self.rooms_asked_for += 1
                if response.status != 200:
                    unknown.append((partition, response.status))
        if unknown:
            looks.append(await self._look(session, worker))
            lost = [one for one in unknown if one[0] in before.claims_until(looks[-1])]
            if lost:
                self.lies.append(f"{worker.name} is ready and does not know its rooms: {lost}")

    def check(self) -> None:
        """Require that nobody has lied."""
        for name, looks in self._looks.items():
            for one, other in pairwise(looks):
                if one.claims_until(other) and one.partitions != other.partitions:
                    self.lies.append(f"{name} was ready before it had all: {one}, {other}")
                for stranger, theirs in self._looks.items():
                    if stranger != name:
                        self._compare(name, one, other, stranger, theirs)
        assert not self.lies, f"{len(self.lies)} lies, as {self.lies[:5]}"

    def _compare(
        self, name: str, one: Look, other: Look, stranger: str, theirs: list[Look]
    ) -> None:
        claims = one.claims_until(other)
        for look in theirs if claims else ():
            between = one.answered <= look.asked and look.answered <= other.asked
            if between and look.ready and look.partitions & claims:
                self.lies.append(f"{name} and {stranger} have {look.partitions & claims} at once")

    async def close(self) -> None:
        for task in self._watches:
            task.cancel()
        await asyncio.wait(self._watches)
        for task in self._watches:
            if not task.cancelled():
                task.result()


@asynccontextmanager
async def readiness(rooms: Mapping[int, bytes], *workers: Worker) -> AsyncIterator[Readiness]:
    """Watch these workers, and others that are given to it, while the block runs; then check."""
    watching = Readiness(rooms)
    for worker in workers:
        watching.watch(worker)
    try:
        yield watching
    finally:
        await watching.close()
    watching.check()
    assert watching.rooms_asked_for, "nobody was ever asked for a room"
