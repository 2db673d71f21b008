"""`replay state`: the tables of an application id that is still unused, made from the source topic.

The newest heartbeat of each room is found as a worker finds it, put into the changelog of `latest`
as a worker puts it there, and the group's offsets are set behind what was read. Nothing is written
to the database: all rooms count as not yet written, and the new workers write them once.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import islice

from aiokafka.structs import TopicPartition

from heartbeat_stream.core.heartbeat import Bounds, canonical_key_matches, decode, room_key
from heartbeat_stream.core.latest import Candidate, Combined, Record, combine
from heartbeat_stream.core.partition import partition_for
from heartbeat_stream.core.reasons import Reason, Rejected
from heartbeat_stream.core.room import Room
from heartbeat_stream.jobs.heartbeat_tables import LATEST, encode, latest_version
from heartbeat_stream.recovery.cluster import (
    commit,
    committed,
    ends_of,
    offsets_at,
    open_producer,
    partition_counts,
    refuse_while_running,
)
from heartbeat_stream.recovery.errors import RecoveryError
from heartbeat_stream.recovery.moments import Earliest
from heartbeat_stream.recovery.operation import Progress
from heartbeat_stream.recovery.reading import Span, read_spans, records_in
from heartbeat_stream.recovery.scratch import scratch_directory
from heartbeat_stream.recovery.verdicts import bounds_of
from heartbeat_stream.recovery.words import number_of, were
from heartbeat_stream.settings import Settings
from heartbeat_stream.streaming.producer import BatchProducer, OutRecord
from heartbeat_stream.streaming.store import Change, PartitionStore, StoreOptions
from heartbeat_stream.streaming.topic_admin import (
    TopicError,
    describe_topics,
    ensure_topics,
    kafka_admin,
)
from heartbeat_stream.streaming.topics import (
    TopicSpec,
    TopicState,
    all_topics,
    changelog_topic_name,
    internal_topics,
    repartition_topic_name,
)

__all__ = ["StateRebuild"]

_SLICE = 2000
_CACHE_MB = 64


class StateRebuild:
    """See :class:`heartbeat_stream.recovery.operation.Operation`. The app id is the new one.

    Cut off in the middle, it has put some of the rooms into the changelog and has committed
    nothing, and can be repeated.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._spans: dict[TopicPartition, Span] = {}
        self._missing: list[TopicSpec] = []
        self._partitions = 0

    async def plan(self, progress: Progress) -> Sequence[str]:
        settings = self._settings
        await refuse_while_running(settings, "this is for an application id that is not in use yet")
        topic = settings.topic
        counts = await partition_counts(settings, [topic])
        tps = [TopicPartition(topic, number) for number in range(counts[topic])]
        if any(
            one is not None for one in (await committed(settings, settings.app_id, tps)).values()
        ):
            raise RecoveryError(
                f"the application id {settings.app_id} has been in use: its group has committed "
                "offsets. Choose another HEARTBEAT_APP_ID, or empty these tables with "
                "`heartbeat-stream replay source --from earliest --reset-state`"
            )
        starts = await offsets_at(settings, tps, Earliest())
        ends = await ends_of(settings, tps)
        self._spans = {tp: Span(starts[tp], ends[tp]) for tp in tps}
        await self._look_at_topics()
        return [
            *(f"topic {spec.name} is created" for spec in self._missing),
            f"all of {topic} is read: {number_of(records_in(self._spans), 'record')} at most",
            f"the newest heartbeat of each room goes to the changelog of {LATEST}, in "
            f"{self._partitions} partitions",
            f"the group {settings.app_id} goes on behind what was read",
            "nothing goes to the database: the workers write each room once when they start",
        ]

    async def _look_at_topics(self) -> None:
        """Which topics are missing, and how many partitions the tables have."""
        settings = self._settings
        async with kafka_admin(settings) as admin:
            names = [spec.name for spec in all_topics(settings, {})]
            existing = await describe_topics(admin, names)
        wanted = _internal(settings, existing)
        self._missing = [spec for spec in wanted if spec.name not in existing]
        self._partitions = wanted[-1].partitions
        for spec in wanted:
            found = existing.get(spec.name)
            if found is not None and found.partitions != spec.partitions:
                raise RecoveryError(
                    f"the topic {spec.name} has {found.partitions} partitions and should have "
                    f"{spec.partitions}: choose another HEARTBEAT_APP_ID"
                )

    async def run(self, progress: Progress) -> Sequence[str]:
        settings = self._settings
        await refuse_while_running(settings, "they were started meanwhile")
        async with kafka_admin(settings) as admin:
            try:
                await ensure_topics(admin, self._missing)
            except TopicError as error:
                raise RecoveryError(str(error)) from error
        rejected = 0
        async with _open_stores(self._partitions) as stores:
            done, wanted = 0, records_in(self._spans)
            async for tp, records in read_spans(settings, self._spans):
                combined = _judge(settings, tp, records)
                rejected += len(combined.rejected)
                _keep(stores, combined)
                done += len(records)
                progress(f"{done:,} of {wanted:,} records read")
            async with open_producer(settings) as producer:
                rooms = 0
                for number, store in enumerate(stores):
                    rooms += await self._publish(producer, number, store)
                    progress(f"{number_of(rooms, 'room')} put into the changelog")
        await commit(settings, {tp: span.end for tp, span in self._spans.items()})
        return [
            f"in the tables of {settings.app_id}: {number_of(rooms, 'room')}, from "
            f"{number_of(done, 'record')}",
            f"{were(rejected, 'record')} refused, of which the old workers have made dead letters",
            f"start workers with HEARTBEAT_APP_ID={settings.app_id}",
        ]

    async def _publish(self, producer: BatchProducer, number: int, store: PartitionStore) -> int:
        changelog = changelog_topic_name(self._settings, LATEST)
        entries, count = store.scan(), 0
        while part := list(islice(entries, _SLICE)):
            now = time.time_ns() // 1_000_000
            await producer.publish(changelog, number, [OutRecord(*one) for one in part], now)
            count += len(part)
        return count


def _internal(settings: Settings, existing: dict[str, TopicState]) -> list[TopicSpec]:
    source = existing[settings.topic]
    repartition = existing.get(repartition_topic_name(settings))
    return internal_topics(
        settings,
        source.partitions,
        source_retention_ms=source.retention_ms,
        repartition_partitions=repartition.partitions if repartition else None,
    )


def _judge(settings: Settings, tp: TopicPartition, records: Sequence[Record]) -> Combined:
    """The newest heartbeat of each room among these, and what is none."""
    bounds = bounds_of(settings, time.time_ns() // 1_000_000)
    if not settings.source_keyed:
        return combine(records, tp.partition, bounds)
    right, misplaced = list[Record](), list[Record]()
    for record in records:
        (right if _is_in_place(record, bounds) else misplaced).append(record)
    combined = combine(right, tp.partition, bounds)
    combined.rejected += [(one, Rejected(Reason.WRONG_KEY, "")) for one in misplaced]
    return combined


def _is_in_place(record: Record, bounds: Bounds) -> bool:
    """Whether the key is its room's; whether it is a heartbeat is not judged here."""
    try:
        return canonical_key_matches(record.key, decode(record.value or b"", bounds))
    except Rejected:
        return True


def _keep(stores: Sequence[PartitionStore], combined: Combined) -> None:
    """Keep what is newer than what the stores hold."""
    now = time.time_ns() // 1_000_000
    by_partition: dict[int, dict[bytes, Candidate]] = {}
    for (hotel, room), candidate in combined.newest.items():
        key = room_key(hotel, room)
        by_partition.setdefault(partition_for(key, len(stores)), {})[key] = candidate
    for number, candidates in by_partition.items():
        store = stores[number]
        changes: list[Change] = []
        for key, known in zip(candidates, store.get_many(list(candidates)), strict=True):
            one = candidates[key]
            if known is None or latest_version(known) < one.heartbeat.ts_ms:
                room_state = Room.first(
                    one.heartbeat, key, number, one.source_partition, one.source_offset, now
                )
                changes.append((key, encode(room_state.stored())))
        store.write(changes)


@asynccontextmanager
async def _open_stores(partitions: int) -> AsyncIterator[list[PartitionStore]]:
    """A store for each partition, in a temporary directory."""
    options = StoreOptions(_CACHE_MB)
    with scratch_directory() as directory:
        stores = [
            PartitionStore(directory / f"{number}", options, "recovery")
            for number in range(partitions)
        ]
        try:
            yield stores
        finally:
            for store in stores:
                store.close()
