"""The main job: of each room's heartbeats the newest, into the database when the room is due.

Two agents feed it. With a source that is not keyed, ``ingest`` judges the records and forwards the
newest of each room by its key; ``absorb`` merges them into the rooms' state. A timer calls
``drain``, which hands due rooms to the sink.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import cast

from faust.types import TP, Message

from heartbeat_stream.core.cooldown import Schedule
from heartbeat_stream.core.heartbeat import Bounds, Heartbeat, room_key
from heartbeat_stream.core.latest import (
    Merged,
    Record,
    Shard,
    combine,
    encode_candidate,
    merge,
    merge_forwarded,
)
from heartbeat_stream.core.partition import partition_for
from heartbeat_stream.core.reasons import Rejected
from heartbeat_stream.core.room import NEVER, Room, Written
from heartbeat_stream.database import postgres_settings
from heartbeat_stream.jobs.draining import Drain
from heartbeat_stream.jobs.forgetting import Evictor, Expiry
from heartbeat_stream.jobs.heartbeat_tables import (
    LATEST,
    WRITTEN,
    ChangedDelta,
    SettledDelta,
    encode,
    find_rooms,
    latest_version,
    written_version,
)
from heartbeat_stream.jobs.job import Handle, House, TopicGrown
from heartbeat_stream.jobs.looking import Rooms
from heartbeat_stream.jobs.rebuilding import rebuild, reconcile
from heartbeat_stream.settings import Settings
from heartbeat_stream.sinks.postgres import PostgresSink, Table
from heartbeat_stream.streaming.checkpoint import Checkpointer, Delta
from heartbeat_stream.streaming.dead_letters import DeadLetters
from heartbeat_stream.streaming.lease import Lease
from heartbeat_stream.streaming.producer import Outbox, OutRecord
from heartbeat_stream.streaming.store import News, PartitionStore
from heartbeat_stream.streaming.tables import StateTable
from heartbeat_stream.streaming.topics import JobTopics, heartbeat_topics

__all__ = ["HeartbeatJob", "build", "topics"]

logger = logging.getLogger(__name__)

#: Rooms whose key and partition `ingest` remembers.
_MOST_ROUTES = 500_000

_LEASE_POLL_S = 0.05
#: How often, at the end, it is looked whether something more is due.
_DRAIN_POLL_S = 0.05


class HeartbeatJob:
    """State and agents of the job in one worker."""

    name = "heartbeats"

    def __init__(
        self,
        settings: Settings,
        *,
        latest: StateTable,
        written: StateTable,
        sink: PostgresSink,
        outbox: Outbox,
        dead_letters: DeadLetters,
        checkpointer: Checkpointer,
        repartition_topic: str,
        partitions: int,
        now_ms: Callable[[], int],
        lease: Lease,
    ) -> None:
        """``partitions``: how many the tables have, and so the topic that feeds them."""
        self.tables: Sequence[StateTable] = (latest, written)
        self.schedule = Schedule(
            settings.buffer_window_ms, settings.cooldown_ms, settings.buffer_size_max
        )
        self.drain = Drain(
            self.schedule,
            sink,
            batch_max=settings.buffer_size_max,
            batches_at_once=settings.database_pool_size,
            now_ms=now_ms,
            refuse=self._refuse,
            settled=self._note_settled,
        )
        self.sink = sink
        self.expiry = Expiry(latest, written, settings.state_ttl_ms)
        self.shards: dict[int, Shard] = {}
        self.counts: Counter[str] = Counter()
        self._evictor = Evictor(settings.cache_rooms)
        self._settings = settings
        self._latest = latest
        self._written = written
        self._outbox = outbox
        self._dead_letters = dead_letters
        self._checkpointer = checkpointer
        self._repartition_topic = repartition_topic
        self._partitions = partitions
        self._now_ms = now_ms
        self._lease = lease
        self._owned: set[int] = set()
        self._parked: set[int] = set()
        self._complete: set[int] = set()  # partitions of which all that is pending is in memory
        self._routes: dict[tuple[int, str], tuple[bytes, int]] = {}
        self.rooms = Rooms(self.schedule, self.shards, self._stores, self.owns)

    # -- agents ----------------------------------------------------------------------------------

    def agents(self) -> Mapping[str, Handle]:
        if self._settings.source_keyed:
            return {self._settings.topic: self.absorb}
        return {self._repartition_topic: self.absorb, self._settings.topic: self.ingest}

    async def ingest(self, message: Message) -> None:
        """Judge a batch of an unkeyed source and forward the newest heartbeat of each room."""
        records = cast("Sequence[Record]", message.value)
        combined = combine(records, message.partition, self._bounds(self._now_ms()))
        self._count(records, combined.rejected, combined.tombstones)
        self.counts["combined"] += combined.stale
        self.counts["forwarded"] += len(combined.newest)
        by_partition: dict[int, list[OutRecord]] = {}
        for room, candidate in combined.newest.items():
            key, partition = self._routes.get(room) or self._route(room)
            forwarded = by_partition.get(partition)
            if forwarded is None:
                forwarded = by_partition[partition] = []
            forwarded.append(OutRecord(key, encode_candidate(candidate)))
        for partition, forwarded in by_partition.items():
            await self._outbox.put(self._repartition_topic, partition, forwarded)
        await self._reject(message.tp, combined.rejected)
        self._checkpointer.hold(message)

    def _route(self, room: tuple[int, str]) -> tuple[bytes, int]:
        if len(self._routes) >= _MOST_ROUTES:
            self._routes.clear()
        key = room_key(*room)
        route = self._routes[room] = key, partition_for(key, self._partitions)
        return route

    async def absorb(self, message: Message) -> None:
        """Merge a batch of heartbeats that are keyed by room into the rooms' state."""
        if message.partition >= self._partitions:
            raise TopicGrown(message.topic, self._partitions)
        while not self._lease.held and message.partition in self._owned:
            await asyncio.sleep(_LEASE_POLL_S)  # another worker may have it: wait to be told
        shard = self.shards.get(message.partition)
        if shard is None or message.partition not in self._owned:
            return  # delivered in the moment of a rebalance: it comes again where it belongs
        records = cast("Sequence[Record]", message.value)
        now = self._now_ms()
        if self._settings.source_keyed:
            merged = merge(shard, records, self._bounds(now), now)
            self._count(records, merged.rejected, merged.tombstones)
        else:
            merged = merge_forwarded(shard, records, now)
        if merged.missed:
            self._admit(shard, merged, now)
        self.counts["stale"] += merged.stale
        self.counts["merged"] += (
            len(records) - merged.stale - merged.tombstones - len(merged.rejected)
        )
        await self._reject(message.tp, merged.rejected)
        self._checkpointer.hold(message)

    def _admit(self, shard: Shard, merged: Merged, now: int) -> None:
        keys = list(merged.missed)
        found = find_rooms(*self._stores(shard.partition), keys)
        for key, known in zip(keys, found, strict=True):
            if not shard.admit(key, known, merged.missed[key], now):
                merged.stale += 1

    def _bounds(self, now: int) -> Bounds:
        return Bounds(self._settings.min_ts_ms, now + self._settings.max_future_ms)

    def _count(
        self,
        records: Sequence[Record],
        rejected: Sequence[tuple[object, Rejected]],
        tombstones: int,
    ) -> None:
        self.counts["records"] += len(records)
        self.counts["tombstones"] += tombstones
        self.counts["rejected"] += len(rejected)

    async def _reject(self, tp: TP, rejected: Iterable[tuple[Record, Rejected]]) -> None:
        for record, why in rejected:
            await self._dead_letters.put_record(tp, record, why)

    # -- timers ----------------------------------------------------------------------------------

    @property
    def may_write(self) -> bool:
        """Whether any partition is ours, and surely nobody else's."""
        return bool(self._owned) and self._lease.may_write

    def tick(self) -> None:
        """Start writing what is due of the partitions that are ours."""
        if self.may_write:
            self.drain.start_due()

    def keep_house(self) -> None:
        """Look at a slice of the rooms for those that memory, or the tables, may forget."""
        if self._checkpointer.running:
            return  # the rooms that it writes look as if they were on disk, and are not yet
        self._evictor.turn(self.shards, self.schedule.pending)
        for partition in self._owned:
            self.expiry.sweep(self.shards[partition], self._now_ms())

    async def _refuse(
        self, room: Room, row: Heartbeat, source: tuple[int, int], why: Rejected
    ) -> None:
        topic = self._settings.topic
        await self._dead_letters.put(room.key, encode(row), why, topic, *source)

    def _note_settled(self, rooms: Sequence[Room]) -> None:
        for room in rooms:
            shard = self.shards.get(room.partition)
            if shard is not None:
                shard.note_settled((room,))

    def trouble(self) -> Mapping[str, str | None]:
        return {"database_error": self.drain.last_error}

    async def finish(self, timeout_s: float) -> None:
        """Give rooms that are due by now the chance to be written."""
        try:
            async with asyncio.timeout(timeout_s):
                while self.may_write and self.drain.is_open and self.schedule.due(self._now_ms()):
                    self.tick()
                    await asyncio.sleep(_DRAIN_POLL_S)
        except TimeoutError:
            logger.warning("not everything that is due was written in time: it stays pending")

    async def stop(self) -> None:
        await self.sink.stop(1.0)

    # -- what the engine asks --------------------------------------------------------------------

    async def load(self, partition: int) -> None:
        stores = self._stores(partition)
        shard = self.shards.setdefault(partition, Shard(partition, self.schedule))
        if partition not in self._complete or any(store.news != News() for store in stores):
            self._complete.discard(partition)
            await reconcile(shard, *stores, self._now_ms)
            await rebuild(shard, *stores, self._now_ms)
            self._complete.add(partition)
        # Otherwise nobody else has had the partition since we had it: memory is what the tables
        # are, or ahead of them.
        shard.unpark(self._now_ms())
        self._parked.discard(partition)

    def own(self, partition: int) -> None:
        self._owned.add(partition)

    def _stores(self, partition: int) -> tuple[PartitionStore, PartitionStore]:
        return (
            self._latest.store.partitions[partition],
            self._written.store.partitions[partition],
        )

    async def quiesce(self, timeout_s: float) -> None:
        self._owned.clear()
        await self.drain.quiesce(timeout_s)

    def park(self, partition: int) -> None:
        self._owned.discard(partition)
        self._parked.add(partition)
        shard = self.shards.get(partition)
        if shard is not None:
            shard.park()

    def drop(self, partition: int) -> None:
        self.park(partition)
        self.shards.pop(partition, None)
        self._complete.discard(partition)
        self._parked.discard(partition)
        self._evictor.drop(partition)
        self.expiry.drop(partition)

    def deltas(self) -> list[Delta]:
        deltas: list[Delta] = []
        for partition, shard in self.shards.items():
            if partition in self._parked:
                continue  # what changed since the partition was given up is not ours to write
            deltas.append(ChangedDelta(self._latest, shard))
            deltas.append(SettledDelta(self._written, shard))
            deltas += self.expiry.take(shard)
        return deltas

    # -- looking up ------------------------------------------------------------------------------

    def owns(self, partition: int) -> bool:
        return partition in self._owned

    def look_up(self, table: str, key: bytes) -> Heartbeat | Written | None:
        found = self.find(key)
        if found is None:
            return None
        newest, written = found
        return newest if table == LATEST else written

    def find(self, key: bytes) -> tuple[Heartbeat, Written | None] | None:
        """A room of a partition that is ours, as it is now; None if it is not known."""
        room = self.rooms.find(partition_for(key, self._partitions), key)
        if room is None:
            return None
        written = Written(room.written_at, room.written_ts) if room.written_ts != NEVER else None
        return room.newest, written


def topics(settings: Settings) -> JobTopics:
    """What the job reads and keeps."""
    return heartbeat_topics(settings)


def build(house: House, topics: JobTopics, partitions: int) -> HeartbeatJob:
    """The job of a worker."""
    settings = house.settings
    return HeartbeatJob(
        settings,
        latest=house.table(LATEST, latest_version, partitions),
        written=house.table(WRITTEN, written_version, partitions),
        sink=PostgresSink(postgres_settings(settings), Table.parse(settings.table)),
        outbox=house.outbox,
        dead_letters=house.dead_letters,
        checkpointer=house.checkpointer,
        repartition_topic=topics.repartition,
        partitions=partitions,
        now_ms=house.now_ms,
        lease=house.lease,
    )
