"""The main job: of each room's heartbeats the newest, into the database when the room is due.

Two agents feed it. With a source that is not keyed, ``ingest`` judges the records and forwards the
newest of each room by its key; ``absorb`` merges them into the rooms' state. A timer calls
``drain``, which hands due rooms to the sink.
"""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, cast

from aiokafka.structs import ConsumerRecord
from faust.types import Message

from heartbeat_stream.complaints import Complaints
from heartbeat_stream.core.cooldown import Schedule
from heartbeat_stream.core.heartbeat import Bounds, Heartbeat, room_key
from heartbeat_stream.core.latest import (
    Merged,
    Shard,
    combine,
    encode_candidate,
    merge,
    merge_forwarded,
)
from heartbeat_stream.core.partition import partition_for
from heartbeat_stream.core.reasons import Reason, Rejected
from heartbeat_stream.core.room import NEVER, Room, Stored, Written
from heartbeat_stream.jobs.heartbeat_tables import (
    ChangedDelta,
    SettledDelta,
    TombstoneDelta,
    encode,
    find_rooms,
    read_stored,
    read_written,
    written_version,
)
from heartbeat_stream.settings import Settings
from heartbeat_stream.sinks.postgres import Refused, SinkUnavailable
from heartbeat_stream.streaming.changelog import CaughtUp
from heartbeat_stream.streaming.checkpoint import Checkpointer, Delta
from heartbeat_stream.streaming.dead_letters import DeadLetters
from heartbeat_stream.streaming.producer import Outbox, OutRecord
from heartbeat_stream.streaming.tables import StateTable

__all__ = ["HeartbeatJob", "Sink"]

logger = logging.getLogger(__name__)

#: Rooms looked at between two looks at the event loop.
_SLICE = 2000

_BACKOFF_FIRST_MS = 50
_BACKOFF_MOST_MS = 1000

#: Routes of rooms that `ingest` remembers: their key and partition.
_MOST_ROUTES = 500_000


class Sink(Protocol):
    """Where due rooms go."""

    async def upsert(self, rows: Sequence[Heartbeat]) -> list[Refused]:
        """Raises SinkUnavailable where nothing is wrong with the rows."""


class HeartbeatJob:
    """State and agents of the job in one worker."""

    name = "heartbeats"

    def __init__(
        self,
        settings: Settings,
        *,
        latest: StateTable,
        written: StateTable,
        sink: Sink,
        outbox: Outbox,
        dead_letters: DeadLetters,
        checkpointer: Checkpointer,
        repartition_topic: str,
        partitions: int,
        now_ms: Callable[[], int],
    ) -> None:
        self.tables: Sequence[StateTable] = (latest, written)
        self.schedule = Schedule(
            settings.buffer_window_ms, settings.cooldown_ms, settings.buffer_size_max
        )
        self.shards: dict[int, Shard] = {}
        self.counts: Counter[str] = Counter()
        self._settings = settings
        self._latest = latest
        self._written = written
        self._sink = sink
        self._outbox = outbox
        self._dead_letters = dead_letters
        self._checkpointer = checkpointer
        self._repartition_topic = repartition_topic
        self._partitions = partitions
        self._now_ms = now_ms
        self._owned: set[int] = set()
        self._writes: set[asyncio.Task[None]] = set()
        self._backoff_ms = 0
        self._retry_at = 0
        self._routes: dict[tuple[int, str], tuple[bytes, int]] = {}
        self._hands: dict[int, list[bytes]] = {}
        self._sweeps: dict[int, bytes | None] = {}
        self._expired: dict[int, dict[bytes, tuple[int, int]]] = {}
        self._complaints = Complaints(logger)
        self.last_sink_error: str | None = None

    # -- agents ----------------------------------------------------------------------------------

    def _bounds(self, now: int) -> Bounds:
        return Bounds(self._settings.min_ts_ms, now + self._settings.max_future_ms)

    async def ingest(self, message: Message) -> None:
        """Judge a batch of an unkeyed source and forward the newest heartbeat of each room."""
        records = cast("Sequence[ConsumerRecord]", message.value)
        now = self._now_ms()
        combined = combine(records, message.partition, self._bounds(now))
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
        await self._reject(combined.rejected)
        self._checkpointer.hold(message)

    def _route(self, room: tuple[int, str]) -> tuple[bytes, int]:
        if len(self._routes) >= _MOST_ROUTES:
            self._routes.clear()
        key = room_key(*room)
        route = self._routes[room] = key, partition_for(key, self._partitions)
        return route

    async def absorb(self, message: Message) -> None:
        """Merge a batch of heartbeats that are keyed by room into the rooms' state."""
        shard = self.shards.get(message.partition)
        if shard is None or message.partition not in self._owned:
            return  # delivered in the moment of a rebalance: it comes again where it belongs
        records = cast("Sequence[ConsumerRecord]", message.value)
        now = self._now_ms()
        if self._settings.source_keyed:
            merged = merge(shard, records, self._bounds(now), now)
            self._count(records, merged.rejected, merged.tombstones)
        else:
            merged = merge_forwarded(shard, records, now)
        if merged.missed:
            self._admit(shard, merged, now)
        self.counts["stale"] += merged.stale
        self.counts["merged"] += len(records) - merged.stale - len(merged.rejected)
        await self._reject(merged.rejected)
        self._checkpointer.hold(message)

    def _admit(self, shard: Shard, merged: Merged, now: int) -> None:
        keys = list(merged.missed)
        for key, found in zip(keys, self._find(shard.partition, keys), strict=True):
            if not shard.admit(key, found, merged.missed[key], now):
                merged.stale += 1

    def _find(
        self, partition: int, keys: Sequence[bytes]
    ) -> list[tuple[Stored, Written | None] | None]:
        latest, written = (table.store.partitions[partition] for table in self.tables)
        return find_rooms(latest, written, keys)

    def _count(
        self,
        records: Sequence[ConsumerRecord],
        rejected: Sequence[tuple[object, Rejected]],
        tombstones: int,
    ) -> None:
        self.counts["records"] += len(records)
        self.counts["tombstones"] += tombstones
        self.counts["rejected"] += len(rejected)

    async def _reject(self, rejected: Iterable[tuple[ConsumerRecord, Rejected]]) -> None:
        for record, why in rejected:
            await self._dead_letters.put_record(record, why)

    # -- the sink --------------------------------------------------------------------------------

    def drain(self) -> None:
        """Hand what is due to the sink, in as many batches at once as it has connections."""
        now = self._now_ms()
        if now < self._retry_at or not self._owned:
            return
        while len(self._writes) < self._settings.database_pool_size:
            rooms = self.schedule.take(now, self._settings.buffer_size_max)
            if not rooms:
                return
            task = asyncio.create_task(self._write(rooms))
            self._writes.add(task)
            task.add_done_callback(self._writes.discard)

    async def _write(self, rooms: list[Room]) -> None:
        rows = [room.newest for room in rooms]
        sources = [(room.source_partition, room.source_offset) for room in rooms]
        try:
            refused = await self._sink.upsert(rows)
        except SinkUnavailable as exc:
            self.schedule.give_back(rooms)
            self._back_off(exc)
            return
        except BaseException:
            self.schedule.give_back(rooms)
            raise
        self._backoff_ms = 0
        self.last_sink_error = None
        for one in refused:
            row = rows[one.index]
            await self._dead_letters.put(
                rooms[one.index].key,
                encode(row),
                Rejected(Reason.ROW_REFUSED, one.detail),
                self._settings.topic,
                *sources[one.index],
            )
        self.counts["written"] += len(rooms) - len(refused)
        self.counts["refused"] += len(refused)
        self.schedule.acknowledge(rooms, [row.ts_ms for row in rows], self._now_ms())
        for room in rooms:
            shard = self.shards.get(room.partition)
            if shard is not None:
                shard.note_settled((room,))

    @property
    def sink_is_open(self) -> bool:
        """Whether the database took what it was given last."""
        return self._backoff_ms == 0

    def _back_off(self, exc: SinkUnavailable) -> None:
        self._backoff_ms = min(max(2 * self._backoff_ms, _BACKOFF_FIRST_MS), _BACKOFF_MOST_MS)
        self._retry_at = self._now_ms() + int(self._backoff_ms * random.uniform(0.5, 1.0))
        self.counts[f"retries.{exc.kind}"] += 1
        self.last_sink_error = str(exc)
        self._complaints.warning(
            "the database does not take rows (%s): they stay pending and are tried again", exc
        )

    # -- what the engine asks --------------------------------------------------------------------

    async def load(self, partition: int, caught_up: dict[str, CaughtUp]) -> None:
        latest, written = caught_up[self._latest.name], caught_up[self._written.name]
        shard = self.shards.get(partition)
        now = self._now_ms()
        if shard is not None and not any(
            one.records or one.republish or one.overtaken for one in (latest, written)
        ):
            # Nobody else has had the partition since we had it: memory is what the tables are.
            shard.unpark(now)
        else:
            if shard is None:
                shard = self.shards[partition] = Shard(partition, self.schedule)
            await self._reconcile(shard)
            await self._rebuild(shard, latest, written)
        self._owned.add(partition)

    async def _reconcile(self, shard: Shard) -> None:
        keys = list(shard.rooms)
        for start in range(0, len(keys), _SLICE):
            part = keys[start : start + _SLICE]
            for key, found in zip(part, self._find(shard.partition, part), strict=True):
                room = shard.rooms.get(key)
                if room is not None:
                    stored, written = found or (None, None)
                    shard.reconcile(room, stored, written, self._now_ms())
            await asyncio.sleep(0)

    async def _rebuild(self, shard: Shard, latest: CaughtUp, written: CaughtUp) -> None:
        """Enter into the due index whatever the tables say is pending, and flag what must be
        written to the changelogs again."""
        rooms = shard.rooms
        writes = self._written.store.partitions[shard.partition].scan()
        write = next(writes, None)
        for count, (key, raw) in enumerate(self._latest.store.partitions[shard.partition].scan()):
            if count % _SLICE == 0:
                await asyncio.sleep(0)
            while write is not None and write[0] < key:
                write = next(writes, None)
            last = read_written(write[1]) if write is not None and write[0] == key else None
            again = latest.republish or key in latest.overtaken
            again_written = last and (written.republish or key in written.overtaken)
            room = rooms.get(key)
            if room is None:
                stored = read_stored(raw)
                if last is not None and stored.ts_ms <= last.ts_ms and not (again or again_written):
                    continue
                room = shard.restore(stored, last, now=self._now_ms())
            if again:
                shard.note_changed(room)
            if again_written:
                shard.note_settled((room,))

    async def quiesce(self, timeout_s: float) -> None:
        self._owned.clear()
        if self._writes:
            _, late = await asyncio.wait(self._writes, timeout=timeout_s)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)

    def park(self, partition: int) -> None:
        self._owned.discard(partition)
        self.shards[partition].park()

    def drop(self, partition: int) -> None:
        self._owned.discard(partition)
        shard = self.shards.pop(partition, None)
        if shard is not None:
            shard.park()
        self._hands.pop(partition, None)
        self._sweeps.pop(partition, None)
        self._expired.pop(partition, None)

    def deltas(self) -> list[Delta]:
        deltas: list[Delta] = []
        for shard in self.shards.values():
            deltas.append(ChangedDelta(self._latest, shard))
            deltas.append(SettledDelta(self._written, shard))
            deltas += self._tombstones(shard)
        return deltas

    # -- forgetting ------------------------------------------------------------------------------

    def evict(self) -> None:
        """Forget rooms that have nothing to write, beyond what the cache is to hold.

        Goes round the rooms like the hand of a clock, a slice at a call.
        """
        excess = (
            sum(len(shard.rooms) for shard in self.shards.values()) - self._settings.cache_rooms
        )
        for partition, shard in self.shards.items():
            if excess <= 0:
                return
            hand = self._hands.get(partition)
            if not hand:
                hand = self._hands[partition] = list(shard.rooms)
            for _ in range(min(_SLICE, len(hand))):
                key = hand.pop()
                room = shard.rooms.get(key)
                if room is not None and room.clean:
                    del shard.rooms[key]
                    excess -= 1

    def sweep(self) -> None:
        """Look at the next slice of each table for rooms that have been silent for too long."""
        if not self._settings.state_ttl_ms:
            return
        too_old = self._now_ms() - self._settings.state_ttl_ms
        for partition in list(self._owned):
            shard = self.shards[partition]
            store = self._latest.store.partitions[partition]
            writes = self._written.store.partitions[partition]
            after = self._sweeps.get(partition)
            count = 0
            for key, raw in store.scan(after):
                after = key
                count += 1
                self._consider(shard, key, raw, writes.get(key), too_old)
                if count >= _SLICE:
                    break
            self._sweeps[partition] = after if count >= _SLICE else None

    def _consider(
        self, shard: Shard, key: bytes, raw: bytes, raw_written: bytes | None, too_old: int
    ) -> None:
        room = shard.rooms.get(key)
        stored = read_stored(raw)
        if stored.ts_ms >= too_old or raw_written is None:
            return
        if read_written(raw_written).ts_ms < stored.ts_ms:
            return  # still to be written
        if room is not None:
            if not room.clean or room.newest.ts_ms > stored.ts_ms:
                return
            del shard.rooms[key]
        expired = self._expired.setdefault(shard.partition, {})
        expired[key] = (stored.ts_ms, written_version(raw_written))

    def _tombstones(self, shard: Shard) -> list[Delta]:
        expired = self._expired.pop(shard.partition, None)
        if not expired:
            return []
        # A room that has come back to life meanwhile is in memory again.
        gone = {key: versions for key, versions in expired.items() if key not in shard.rooms}
        self.counts["expired"] += len(gone)
        return [
            TombstoneDelta(self._latest, shard.partition, {k: v[0] for k, v in gone.items()}),
            TombstoneDelta(self._written, shard.partition, {k: v[1] for k, v in gone.items()}),
        ]

    # -- looking up ------------------------------------------------------------------------------

    def owns(self, partition: int) -> bool:
        return partition in self._owned

    def find(self, key: bytes) -> tuple[Heartbeat, Written | None] | None:
        """A room of a partition that is ours, as it is now; None if it is not known."""
        partition = partition_for(key, self._partitions)
        shard = self.shards.get(partition)
        if shard is None:
            return None
        room = shard.rooms.get(key)
        if room is None:
            found = self._find(partition, [key])[0]
            if found is None:
                return None
            room = Room.restored(partition, *found)
        written = Written(room.written_at, room.written_ts) if room.written_ts != NEVER else None
        return room.newest, written
