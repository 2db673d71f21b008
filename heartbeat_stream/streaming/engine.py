"""What a worker owns at the moment, and what happens when that changes.

Partitions come and go with Faust's rebalances. When one is given up, writes in flight end, its
state is checkpointed and its offsets are committed, all within a bound. When one is gained, its
tables are brought up to date from the changelogs before the first record comes. Jobs only see
partitions that are theirs.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition
from faust.types import TP

from heartbeat_stream.complaints import Complaints
from heartbeat_stream.distribution import SECONDS, Distribution
from heartbeat_stream.streaming.changelog import ChangelogReader
from heartbeat_stream.streaming.checkpoint import Checkpointer, Delta
from heartbeat_stream.streaming.producer import RecordRefused
from heartbeat_stream.streaming.store import News, PartitionStore, StoreDamaged, StoreError
from heartbeat_stream.streaming.tables import StateTable

__all__ = ["Engine", "StatefulJob", "Superseded"]

logger = logging.getLogger(__name__)


class Superseded(Exception):
    """The partitions that were being recovered have been given up meanwhile."""


class StatefulJob(Protocol):
    """A job as the engine sees it. Its tables share their partitions with one topic."""

    name: str
    tables: Sequence[StateTable]

    async def load(self, partition: int) -> None:
        """The tables of a partition are up to date: get ready for its records.

        The stores' news tell what the changelogs brought. May be cancelled, and called again.
        """

    def own(self, partition: int) -> None:
        """The partition is loaded and ours: its records come, and its rooms may be written."""

    async def quiesce(self, timeout_s: float) -> None:
        """Return when no write is in flight: after the timeout those that are are cut, within the
        same time again at most."""

    def park(self, partition: int) -> None:
        """The partition may be given up: touch nothing of it until it is loaded again."""

    def drop(self, partition: int) -> None:
        """The partition belongs to somebody else now: forget it."""

    def deltas(self) -> Iterable[Delta]:
        """What changed since the last call, of every partition that is loaded and not parked."""


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
        fence: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """``fence`` is awaited when partitions have come, before anything of them is read."""
        self._fence = fence
        self._jobs = jobs
        self._checkpointer = checkpointer
        self._reader = reader
        self._checkpoint_interval_s = checkpoint_interval_s
        self._release_timeout_s = release_timeout_s
        self._tables = {table.changelog: (job, table) for job in jobs for table in job.tables}
        self._complaints = Complaints(logger)
        self._loading = asyncio.Lock()
        self._epoch = 0  # grows whenever partitions are given up
        self._given_up = 0  # the last epoch that began with that, once its checkpoint is made
        #: Partitions of each job that are loaded, and therefore ours to work on.
        self.owned: dict[str, set[int]] = {job.name: set() for job in jobs}
        self._open: dict[str, set[int]] = {job.name: set() for job in jobs}
        self.assigned = False  #: whether any assignment has come yet
        self.recovering = False
        self.rebalances = 0
        #: From giving partitions up until those that came instead were recovered.
        self.rebalance_seconds = Distribution(SECONDS)
        self._rebalancing_since: float | None = None
        self._joining_since = time.perf_counter()
        self.recovered_records = 0
        self.last_checkpoint_at = time.monotonic()
        self.last_error: str | None = None

    def owns(self, job: StatefulJob, partition: int) -> bool:
        return partition in self.owned[job.name]

    @property
    def waiting_s(self) -> float | None:
        """For how long the group has granted nothing, seconds; None while it has."""
        if self.recovering or (self.assigned and self._rebalancing_since is None):
            return None
        return time.perf_counter() - (self._rebalancing_since or self._joining_since)

    @property
    def checkpoint_age_s(self) -> float:
        """How long ago the last checkpoint was completed."""
        return time.monotonic() - self.last_checkpoint_at

    # -- gaining partitions ----------------------------------------------------------------------

    async def recover(self, changelogs: dict[str, set[int]]) -> None:
        """Make exactly these changelog partitions ours. May be cancelled, and called again.

        Raises :class:`KafkaError` where the changelogs cannot be read, and :class:`Superseded`
        where the partitions have been given up again meanwhile.
        """
        self.recovering = True
        started, read = time.perf_counter(), self.recovered_records
        wanted: dict[str, set[int]] = {job.name: set() for job in self._jobs}
        for changelog, partitions in changelogs.items():
            wanted[self._tables[changelog][0].name] |= partitions
        async with self._loading:
            epoch = self._epoch
            for job in self._jobs:
                for partition in self._open[job.name] - wanted[job.name]:
                    self._close(job, partition)
                    await asyncio.sleep(0)
            if self._fence is not None:
                await self._fence()
            while (damage := await self._try_to_load(wanted, epoch)) is not None:
                store, why = damage
                store.discard(why)
        self.recovering = False
        self.assigned = True
        if self._rebalancing_since is not None:
            self.rebalance_seconds.observe(time.perf_counter() - self._rebalancing_since)
            self._rebalancing_since = None
        logger.info(
            "%d partitions are ours and recovered, %d changelog records read in %.1f s",
            sum(map(len, wanted.values())),
            self.recovered_records - read,
            time.perf_counter() - started,
        )

    async def _try_to_load(
        self, wanted: dict[str, set[int]], epoch: int
    ) -> tuple[PartitionStore, str] | None:
        """Answer a local copy that turned out to be damaged, and what it said; None if all went
        well. The error itself is not kept, since its traceback keeps the database open."""
        try:
            await self._load(wanted, epoch)
        except StoreDamaged as damage:
            return damage.store, str(damage)
        return None

    async def _load(
        self, wanted: dict[str, set[int]], epoch: int, *, repairing: bool = False
    ) -> None:
        """Bring tables and memory up to date, and own the partitions.

        One that is ours already, and only repaired, has changes in memory, and events that are
        held until those are durable. Where the repair is broken off, the partition stays as it is
        until it is given up: parked before its last checkpoint, it would have its events
        acknowledged and its changes left out.
        """
        stores = await self._open_stores(wanted)
        ends = await self._reader.catch_up(stores, self._count_recovered)
        if repairing:
            _say_who_wrote([store.news for store, _ in stores.values()])
        for job in self._jobs:
            for partition in sorted(wanted[job.name]):
                self._still(epoch)
                try:
                    await job.load(partition)
                    self._still(epoch)
                except BaseException:  # cancelled, too: half of a partition is none
                    if not repairing or self._given_up > epoch:
                        job.park(partition)
                    raise
                for table in job.tables:
                    end = ends[TopicPartition(table.changelog, partition)]
                    self._checkpointer.expected[table.name, partition] = end
                    self._checkpointer.intruded.discard((table.name, partition))
                job.own(partition)
                self.owned[job.name].add(partition)

    def _still(self, epoch: int) -> None:
        if epoch != self._epoch:
            raise Superseded

    async def _open_stores(
        self, wanted: dict[str, set[int]]
    ) -> dict[TopicPartition, tuple[PartitionStore, Callable[[bytes], int]]]:
        stores = {}
        for changelog, (job, table) in self._tables.items():
            for partition in wanted[job.name]:
                store = table.store.open(partition)
                self._open[job.name].add(partition)
                stores[TopicPartition(changelog, partition)] = (store, table.version)
                # Opening one takes up to ten milliseconds, and there may be dozens.
                await asyncio.sleep(0)
        return stores

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
        self._epoch += 1
        started = time.perf_counter()
        if self._rebalancing_since is None:
            self._rebalancing_since = started
        for job in self._jobs:
            self.owned[job.name].clear()
        await self._quiesce(self._release_timeout_s / 3)
        try:
            async with asyncio.timeout(self._release_timeout_s / 3):
                await self.checkpoint()
        except (TimeoutError, KafkaError, StoreError) as exc:
            logger.error(
                "partitions are given up without a checkpoint (%r): whoever takes them over starts "
                "from the last one, and may write a room once more than its cooldown allows",
                exc,
            )
        self._checkpointer.forget(revoked)
        self._given_up = self._epoch
        for job in self._jobs:
            for partition in list(self._open[job.name]):
                job.park(partition)
                await asyncio.sleep(0)  # a partition may hold a hundred thousand rooms
        if revoked:
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
        """Make a checkpoint at every interval; after one that failed, simply the next.

        Raises what the next one cannot do either: :class:`StoreDamaged`, and what has kept records
        from being written that a broker will never take (:class:`RecordRefused`).
        """
        while True:
            await sleep(self._checkpoint_interval_s)
            try:
                await self.checkpoint()
                await self._repair()
            except (StoreDamaged, RecordRefused):
                raise  # what cannot be read would be missed: a worker that starts rebuilds it
            except (KafkaError, StoreError) as exc:
                self.last_error = f"{type(exc).__name__}: {exc}"
                self._complaints.warning("checkpoint failed, trying again: %s", self.last_error)

    async def _repair(self) -> None:
        """Read what stands in changelogs of ours beside what was acknowledged to us.

        Another worker, thawed most likely, has written it; or we have, and the acknowledgement did
        not come.
        """
        if not self._checkpointer.intruded:
            return
        async with self._loading:
            epoch = self._epoch
            wanted: dict[str, set[int]] = {job.name: set() for job in self._jobs}
            for name, partition in self._checkpointer.intruded:
                for job in self._jobs:
                    if any(table.name == name for table in job.tables):
                        wanted[job.name] |= {partition} & self.owned[job.name]
            if not any(wanted.values()):
                return
            with suppress(Superseded):
                await self._load(wanted, epoch, repairing=True)

    # -- the end ---------------------------------------------------------------------------------

    async def finish(self, timeout_s: float) -> None:
        """Last checkpoint before the worker ends. Never raises."""
        self._epoch += 1
        for job in self._jobs:
            self.owned[job.name].clear()
        await self._quiesce(timeout_s / 3)
        try:
            async with asyncio.timeout(timeout_s / 3):
                await self.checkpoint()
        except (TimeoutError, KafkaError, StoreError) as exc:
            logger.error("ended without a last checkpoint (%r): a restart repeats some work", exc)

    def close(self) -> None:
        """Close all stores. Nothing may be running any more."""
        for job in self._jobs:
            for partition in list(self._open[job.name]):
                with suppress(StoreError):
                    self._close(job, partition)


def _say_who_wrote(news: Iterable[News]) -> None:
    if any(one.changes or one.overtaken or one.republish for one in news):
        logger.warning(
            "another worker has written to changelogs of partitions that are ours: what it wrote "
            "was read, and what it overtook is written again"
        )
    else:
        logger.info("changelogs of ours hold records twice, which did not seem to have arrived")
