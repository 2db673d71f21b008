"""Whether what a group has committed is durable, at every moment that somebody looked.

An offset is covered when what its record caused stands elsewhere: in the changelog of ``latest``
for a record of the topic that state is kept of; in the repartition topic or among the dead letters
for a record of an unkeyed source. All of it may be newer than the record, never older.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import NamedTuple

import msgspec
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.structs import ConsumerRecord

from heartbeat_stream.core.heartbeat import Bounds, Heartbeat, Rejected, decode, room_key
from tests.support.oracle import now_ms
from tests.support.topic_reader import read_topic
from tests.support.world import World

__all__ = ["Witness", "witnessing"]

# Those of the settings: only a clock that differs by years could tell.
BOUNDS = Bounds(1_420_070_400_000, now_ms() + 86_400_000)
LOOK_EVERY_S = 0.05

Offsets = dict[tuple[str, int], int]


class _Candidate(msgspec.Struct, array_like=True):
    heartbeat: Heartbeat
    source_partition: int
    source_offset: int


_read_candidate = msgspec.json.Decoder(_Candidate).decode


class Look(NamedTuple):
    """Committed offsets, and the ends of the topics a moment later."""

    committed: Offsets
    ends: Offsets


class Witness:
    """Looks again and again while a test goes on; made by :func:`witnessing`. On Apache Kafka."""

    def __init__(self, world: World, consumer: AIOKafkaConsumer) -> None:
        self._world = world
        self._consumer = consumer
        settings = world.settings
        self._state_topic = settings.topic if settings.source_keyed else world.repartition_topic
        self._committing = sorted({settings.topic, self._state_topic})
        self._targets = [world.changelog("latest"), world.dead_letter_topic, self._state_topic]
        self.looks: list[Look] = []

    async def look(self) -> Look:
        """What is committed now, and the ends of the topics after that."""
        committed: Offsets = {}
        for topic in self._committing:
            for partition, offset in (await self._world.committed(topic)).items():
                committed[topic, partition] = offset
        tps = [
            TopicPartition(topic, partition)
            for topic in self._targets
            for partition in range(self._world.settings.partitions)
        ]
        ends = await self._consumer.end_offsets(tps)
        look = Look(committed, {(tp.topic, tp.partition): end for tp, end in ends.items()})
        if not self.looks or look != self.looks[-1]:
            self.looks.append(look)
        return look

    async def run(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(LOOK_EVERY_S)

    async def check(self) -> None:
        """Require that at every look what was committed was durable."""
        bootstrap = self._world.bootstrap_servers
        state_records = await read_topic(bootstrap, self._state_topic)
        changelog = await read_topic(bootstrap, self._world.changelog("latest"))
        keyed = self._world.settings.source_keyed
        heartbeat_of = _heartbeat_from_source if keyed else _heartbeat_from_repartition
        self._check_rooms(self._state_topic, state_records, changelog, heartbeat_of, _changelog_ts)
        dead = await read_topic(bootstrap, self._world.dead_letter_topic)
        source = state_records if keyed else await read_topic(bootstrap, self._world.settings.topic)
        self._check_dead_letters(source, dead)
        if not keyed:
            self._check_rooms(
                self._world.settings.topic,
                source,
                state_records,
                _heartbeat_from_source,
                lambda record: _heartbeat_from_repartition(record).ts_ms,  # type: ignore[union-attr]
            )

    def _check_rooms(
        self,
        topic: str,
        records: Iterable[ConsumerRecord],
        targets: Iterable[ConsumerRecord],
        heartbeat_of: Callable[[ConsumerRecord], Heartbeat | None],
        ts_of: Callable[[ConsumerRecord], int],
    ) -> None:
        caused = defaultdict(list)
        for record in records:
            heartbeat = heartbeat_of(record)
            if heartbeat is not None:
                key = room_key(heartbeat.hotel_id, heartbeat.room_id)
                caused[topic, record.partition].append((record.offset, key, heartbeat.ts_ms))
        target_topic = None
        standing = defaultdict(list)
        for record in targets:
            target_topic = record.topic
            if record.value is not None:
                standing[record.partition].append((record.offset, record.key, ts_of(record)))
        for look in self.looks:
            durable = _newest(
                (key, ts_ms)
                for partition, entries in standing.items()
                for offset, key, ts_ms in entries
                if offset < look.ends[str(target_topic), partition]
            )
            for where, offset in look.committed.items():
                if where[0] != topic:
                    continue
                needed = _newest((key, ts) for at, key, ts in caused[where] if at < offset)
                missing = {
                    key: (ts_ms, durable.get(key))
                    for key, ts_ms in needed.items()
                    if durable.get(key, -1) < ts_ms
                }
                assert not missing, (
                    f"{offset} was committed of {where}, but of {len(missing)} rooms less stood in "
                    f"{target_topic}: {dict(list(missing.items())[:5])}"
                )

    def _check_dead_letters(
        self, source: Iterable[ConsumerRecord], dead: Iterable[ConsumerRecord]
    ) -> None:
        rejected = defaultdict(list)
        for record in source:
            if record.value is not None and _heartbeat_from_source(record) is None:
                rejected[record.topic, record.partition].append(record.offset)
        stands: dict[tuple[int, int], tuple[int, int]] = {}
        for record in dead:
            headers = dict(record.headers)
            origin = int(headers["source-partition"]), int(headers["source-offset"])
            stands.setdefault(origin, (record.partition, record.offset))
        dead_letter_topic = self._world.dead_letter_topic
        for look in self.looks:
            for where, offset in look.committed.items():
                for at in rejected[where]:
                    if at >= offset:
                        continue
                    partition, position = stands[where[1], at]
                    assert position < look.ends[dead_letter_topic, partition], (where, at)


def _newest(entries: Iterable[tuple[bytes, int]]) -> dict[bytes, int]:
    newest: dict[bytes, int] = {}
    for key, ts_ms in entries:
        if ts_ms > newest.get(key, -1):
            newest[key] = ts_ms
    return newest


def _heartbeat_from_source(record: ConsumerRecord) -> Heartbeat | None:
    """None for what must be a dead letter. A key counts where there is one: so none is wrong."""
    try:
        heartbeat = decode(record.value, BOUNDS)
    except (Rejected, TypeError):
        return None
    key = record.key
    if key is not None and key != room_key(heartbeat.hotel_id, heartbeat.room_id):
        return None
    return heartbeat


def _heartbeat_from_repartition(record: ConsumerRecord) -> Heartbeat | None:
    return _read_candidate(record.value).heartbeat


def _changelog_ts(record: ConsumerRecord) -> int:
    ts_ms: int = msgspec.json.decode(record.value)["ts_ms"]
    return ts_ms


@asynccontextmanager
async def witnessing(world: World) -> AsyncIterator[Witness]:
    """Look while the block runs. The topics must exist; ``check`` comes after the block."""
    consumer = AIOKafkaConsumer(bootstrap_servers=world.bootstrap_servers)
    await consumer.start()
    witness = Witness(world, consumer)
    task = asyncio.create_task(witness.run())
    try:
        yield witness
    finally:
        task.cancel()
        await asyncio.wait([task])
        await consumer.stop()
    if not task.cancelled():
        task.result()
