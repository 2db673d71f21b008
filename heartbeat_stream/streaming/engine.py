"""What a worker owns at the moment, and what happens when that changes.

Partitions come and go with Faust's rebalances. When one is given up, writes in flight end, its
state is checkpointed and its offsets are committed, all within a bound. When one is gained, its
tables are brought up to date from the changelogs before the first record comes. Jobs only see
partitions that are theirs.
"""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition
from faust.types import TP

from heartbeat_stream.complaints import Complaints
from heartbeat_stream.streaming.changelog import CaughtUp, ChangelogReader
from heartbeat_stream.streaming.checkpoint import Checkpointer, Delta
from heartbeat_stream.streaming.store import PartitionStore, StoreError
from heartbeat_stream.streaming.tables import StateTable

__all__ = ["Engine", "StatefulJob"]

logger = logging.getLogger(__name__)


class StatefulJob(Protocol):
    """A job as the engine sees it. Its tables share their partitions with one topic."""

    name: str
    tables: Sequence[StateTable]

    async def load(self, partition: int, caught_up: dict[str, CaughtUp]) -> None:
        """The partition is owned, its tables are up to date: get ready for its records.

        ``caught_up`` tells by table name what the changelogs brought. May be cancelled.
        """

    async def quiesce(self, timeout_s: float) -> None:
        """Return when no write is in flight; after the timeout those that are have been cut."""

    def park(self, partition: int) -> None:
        """The partition may be given up: touch nothing of it until it is loaded again."""

    def drop(self, partition: int) -> None:
        """The partition belongs to somebody else now: forget it."""

    def deltas(self) -> Iterable[Delta]:
        """What changed since the last call, of every partition that is loaded or parked."""


class Engine:
    """Jobs, their tables, and the checkpoints that tie them to the source topics."""

    def __init__(
        self,
        jobs: Sequence[StatefulJob],
        checkpointer: Checkpointer,
        reader: ChangelogReader,
        *,
        checkpoint_interval_s: float,
        release_timeout_s: float,
    ) -> None:
        self._jobs = jobs
        self._checkpointer = checkpointer
        self._reader = reader
        self._checkpoint_interval_s = checkpoint_interval_s
        self._release_timeout_s = release_timeout_s
        self._tables = {table.changelog: (job, table) for job in jobs for table in job.tables}
        self._complaints = Complaints(logger)
        #: Partitions of each job that are loaded, and therefore ours to work on.
        self.owned: dict[str, set[int]] = {job.name: set() for job in jobs}
        self._open: dict[str, set[int]] = {job.name: set() for job in jobs}
        self.assigned = False  #: whether any assignment has come yet
        self.recovering = False
        self.rebalances = 0
        self.recovered_records = 0
        self.last_checkpoint_at = time.monotonic()
        self.last_error: str | None = None

    def owns(self, job: StatefulJob, partition: int) -> bool:
        return partition in self.owned[job.name]

    # -- gaining partitions ----------------------------------------------------------------------

    async def recover(self, changelogs: dict[str, set[int]]) -> None:
        """Make exactly these changelog partitions ours. May be cancelled, and called again.

        Raises :class:`KafkaError` where the changelogs cannot be read.
        """
        self.recovering = True
        started = time.perf_counter()
        wanted: dict[str, set[int]] = {job.name: set() for job in self._jobs}
        for changelog, partitions in changelogs.items():
            wanted[self._tables[changelog][0].name] |= partitions
        for job in self._jobs:
            for partition in self._open[job.name] - wanted[job.name]:
                self._close(job, partition)
        caught_up = await self._reader.catch_up(self._stores(wanted), self._count_recovered)
        for job in self._jobs:
            for partition in sorted(wanted[job.name]):
                await self._load(job, partition, caught_up)
        self.recovering = False
        self.assigned = True
        count = sum(map(len, wanted.values()))
        logger.info(
            "%d partitions are ours and recovered, %d changelog records read in %.1f s",
            count,
            sum(one.records for one in caught_up.values()),
            time.perf_counter() - started,
        )

    def _stores(
        self, wanted: dict[str, set[int]]
    ) -> dict[TopicPartition, tuple[PartitionStore, Callable[[bytes], int]]]:
        stores = {}
        for changelog, (job, table) in self._tables.items():
            for partition in wanted[job.name]:
                store = table.store.open(partition)
                self._open[job.name].add(partition)
                stores[TopicPartition(changelog, partition)] = (store, table.version)
        return stores

    async def _load(
        self, job: StatefulJob, partition: int, caught_up: dict[TopicPartition, CaughtUp]
    ) -> None:
        found = {}
        for table in job.tables:
            one = caught_up[TopicPartition(table.changelog, partition)]
            found[table.name] = one
            self._checkpointer.expected[table.name, partition] = one.end
            self._checkpointer.intruded.discard((table.name, partition))
        await job.load(partition, found)
        self.owned[job.name].add(partition)

    def _count_recovered(self, records: int) -> None:
        self.recovered_records += records

    def _close(self, job: StatefulJob, partition: int) -> None:
        self.owned[job.name].discard(partition)
        self._open[job.name].discard(partition)
        job.drop(partition)
        for table in job.tables:
            table.store.close(partition)

    # -- giving partitions up --------------------------------------------------------------------

    async def release(self, revoked: set[TP]) -> None:
        """Called while the partitions are still ours: leave nothing undone that others would miss.

        Never raises. Takes at most the release timeout.
        """
        self.rebalances += 1
        started = time.perf_counter()
        for job in self._jobs:
            self.owned[job.name].clear()
        try:
            async with asyncio.timeout(self._release_timeout_s):
                await self._quiesce(self._release_timeout_s / 2)
                await self.checkpoint()
        except (TimeoutError, KafkaError, StoreError) as exc:
            logger.error(
                "partitions are given up without a checkpoint (%r): whoever takes them over starts "
                "from the last one, and may write a room once more than its cooldown allows",
                exc,
            )
        self._checkpointer.forget(revoked)
        for job in self._jobs:
            for partition in self._open[job.name]:
                job.park(partition)
        logger.info("partitions given up in %.1f s", time.perf_counter() - started)

    async def _quiesce(self, timeout_s: float) -> None:
        await asyncio.gather(*(job.quiesce(timeout_s) for job in self._jobs))

    # -- checkpoints -----------------------------------------------------------------------------

    async def checkpoint(self) -> None:
        """Make durable what was done before this call. Raises what the broker or the disk raise."""
        await self._checkpointer.run(lambda: [d for job in self._jobs for d in job.deltas()])
        self.last_checkpoint_at = time.monotonic()
        self.last_error = None

    async def checkpoint_forever(self, sleep: Callable[[float], Awaitable[Any]]) -> None:
        """Make a checkpoint at every interval; after one that failed, simply the next."""
        while True:
            await sleep(self._checkpoint_interval_s)
            try:
                await self.checkpoint()
                await self._repair()
            except (KafkaError, StoreError) as exc:
                self.last_error = f"{type(exc).__name__}: {exc}"
                self._complaints.warning("checkpoint failed, trying again: %s", self.last_error)

    async def _repair(self) -> None:
        """Read what another worker, thawed most likely, has written to changelogs of ours."""
        if not self._checkpointer.intruded:
            return
        by_job: dict[str, set[int]] = defaultdict(set)
        for name, partition in self._checkpointer.intruded:
            for job in self._jobs:
                if any(table.name == name for table in job.tables) and self.owns(job, partition):
                    by_job[job.name].add(partition)
        if not by_job:
            return
        logger.warning(
            "another worker has written to changelogs of partitions that are ours: reading what it "
            "wrote, and writing again what it overtook"
        )
        wanted = {job.name: by_job[job.name] for job in self._jobs}
        caught_up = await self._reader.catch_up(self._stores(wanted))
        for job in self._jobs:
            for partition in wanted[job.name]:
                await self._load(job, partition, caught_up)

    # -- the end ---------------------------------------------------------------------------------

    async def finish(self, timeout_s: float) -> None:
        """Last checkpoint before the worker ends. Never raises."""
        for job in self._jobs:
            self.owned[job.name].clear()
        try:
            async with asyncio.timeout(timeout_s):
                await self._quiesce(timeout_s / 2)
                await self.checkpoint()
        except (TimeoutError, KafkaError, StoreError) as exc:
            logger.error("ended without a last checkpoint (%r): a restart repeats some work", exc)

    def close(self) -> None:
        """Close all stores. Nothing may be running any more."""
        for job in self._jobs:
            for partition in list(self._open[job.name]):
                with suppress(StoreError):
                    self._close(job, partition)
