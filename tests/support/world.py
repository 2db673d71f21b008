"""Everything that a test of a worker needs of the world, under names of its own."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from aiokafka import AIOKafkaProducer
from aiokafka.structs import ConsumerRecord, RecordMetadata

from heartbeat_stream.core.heartbeat import Heartbeat, room_key
from heartbeat_stream.core.partition import partition_for
from heartbeat_stream.local.fleet import Fleet
from heartbeat_stream.local.record_sender import RecordSender, open_sender
from heartbeat_stream.settings import Settings
from heartbeat_stream.streaming.topic_admin import describe_topics, ensure_topics, kafka_admin
from heartbeat_stream.streaming.topics import (
    TopicSpec,
    all_topics,
    dead_letter_topic,
    repartition_topic_name,
    source_topic,
)
from tests.support.oracle import Oracle, TargetTable, now_ms
from tests.support.topic_reader import (
    committed_offsets,
    end_offsets,
    read_topic,
)
from tests.support.wait import wait_until_async
from tests.support.worker import Worker, Workers

__all__ = ["Cluster", "Load", "World", "encode"]

#: Enough for partitions to differ, few enough for a slow machine to open their stores quickly.
PARTITIONS = 4
LOAD_INTERVAL_S = 0.02
#: How long the load puts up with a broker that does not answer.
LOAD_PATIENCE_MS = 120_000


class Cluster(NamedTuple):
    """A Kafka to test on. The session timeout is the shortest one that is good there."""

    kind: str  #: "embedded" or "kafka"
    bootstrap_servers: str
    session_timeout_ms: int


def encode(heartbeat: Heartbeat) -> bytes:
    """A heartbeat as a plain device sends it."""
    return msgspec.json.encode(heartbeat)


class World:
    """Topics, table, directory and workers of one test, on servers that tests share.

    Nothing is there until ``prepare`` has been called; ``environment`` may be changed before that.
    Times are scaled down: window 0.5 s, cooldown 3 s, a checkpoint every 0.5 s.
    """

    def __init__(
        self, cluster: Cluster, database_url: str, directory: Path, workers: Workers
    ) -> None:
        self.cluster = cluster
        self.bootstrap_servers = cluster.bootstrap_servers
        self.directory = directory
        self.workers = workers
        name = f"t{uuid.uuid4().hex[:12]}"
        self.environment = {
            "HEARTBEAT_BROKERS": cluster.bootstrap_servers,
            "HEARTBEAT_DATABASE_URL": database_url,
            "HEARTBEAT_SESSION_TIMEOUT_MS": str(cluster.session_timeout_ms),
            "HEARTBEAT_APP_ID": name,
            "HEARTBEAT_TOPIC": f"{name}.heartbeat",
            "HEARTBEAT_DEAD_LETTER_TOPIC": f"{name}.dead-letter",
            "HEARTBEAT_TABLE": name,
            "HEARTBEAT_DATA_DIR": str(directory / "data"),
            "HEARTBEAT_PARTITIONS": str(PARTITIONS),
            "HEARTBEAT_BUFFER_WINDOW_MS": "500",
            "HEARTBEAT_COOLDOWN_MS": "3000",
            "HEARTBEAT_CHECKPOINT_MS": "500",
        }

    # -- what there is ---------------------------------------------------------------------------

    @property
    def settings(self) -> Settings:
        return Settings.load(self.environment)

    @property
    def table(self) -> TargetTable:
        settings = self.settings
        return TargetTable(settings.database_url, settings.table)

    @property
    def topic(self) -> str:
        return self.settings.topic

    @property
    def dead_letter_topic(self) -> str:
        return self.settings.dead_letter_topic

    @property
    def repartition_topic(self) -> str:
        return repartition_topic_name(self.settings)

    def changelog(self, table: str) -> str:
        return f"{self.settings.app_id}-{table}-changelog"

    async def prepare(
        self,
        *,
        source_config: Mapping[str, str] | None = None,
        dead_letter_config: Mapping[str, str] | None = None,
        **environment: object,
    ) -> World:
        """Create the topics that are not a worker's own, and the audited table.

        Further settings are given by the lower-case end of their variable: ``cooldown_ms=5``.
        """
        self.set(**environment)
        settings = self.settings
        source, dead_letters = source_topic(settings), dead_letter_topic(settings)
        await self.create_topics(
            TopicSpec(
                source.name, source.partitions, source.replication_factor, source_config or {}
            ),
            TopicSpec(
                dead_letters.name,
                dead_letters.partitions,
                dead_letters.replication_factor,
                {**dead_letters.config, **(dead_letter_config or {})},
            ),
        )
        await self.table.create()
        return self

    def set(self, **environment: object) -> None:
        """Change settings, given by the lower-case end of their variable."""
        for name, value in environment.items():
            self.environment[f"HEARTBEAT_{name.upper()}"] = str(value)

    async def create_topics(self, *specs: TopicSpec) -> None:
        async with kafka_admin(self.settings) as admin:
            await ensure_topics(admin, specs)

    async def topics(self) -> dict[str, Any]:
        """The state of every topic of this test that exists, by name."""
        async with kafka_admin(self.settings) as admin:
            return dict(
                await describe_topics(admin, [spec.name for spec in all_topics(self.settings, {})])
            )

    # -- workers ---------------------------------------------------------------------------------

    def start_worker(self, **environment: object) -> Worker:
        """Start a worker, with further settings as in ``prepare``. It is not ready yet."""
        more = {f"HEARTBEAT_{name.upper()}": str(value) for name, value in environment.items()}
        return self.workers.start({**self.environment, **more})

    # -- records ---------------------------------------------------------------------------------

    async def abort(self, heartbeat: Heartbeat) -> None:
        """Send this in a transaction that comes to nothing, as a replay that is killed does."""
        async with self.producer(transactional_id=f"{self.settings.app_id}-aborts") as producer:
            await producer.begin_transaction()
            key = room_key(heartbeat.hotel_id, heartbeat.room_id)
            await producer.send_and_wait(self.topic, encode(heartbeat), key)
            await producer.abort_transaction()

    @asynccontextmanager
    async def producer(self, **options: Any) -> AsyncIterator[AIOKafkaProducer]:
        """A producer for records made by hand, acknowledged by all. The options are aiokafka's."""
        producer = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap_servers,
            acks="all",
            max_request_size=16 * 1024 * 1024,
            **options,
        )
        await producer.start()
        try:
            yield producer
        finally:
            await producer.stop()

    async def send(
        self, heartbeats: Iterable[Heartbeat], *, oracle: Oracle | None = None
    ) -> list[RecordMetadata]:
        """Send heartbeats keyed by room, and return when they are acknowledged."""
        heartbeats = list(heartbeats)
        partitions = self.settings.partitions
        async with self.producer() as producer:
            futures = []
            for one in heartbeats:
                key = room_key(one.hotel_id, one.room_id)
                futures.append(
                    await producer.send(
                        self.topic, encode(one), key=key, partition=partition_for(key, partitions)
                    )
                )
            sent = list(await asyncio.gather(*futures))
        if oracle is not None:
            oracle.accept(heartbeats)
        return sent

    # -- what became of them ---------------------------------------------------------------------

    async def dead_letters(self) -> list[ConsumerRecord]:
        return await read_topic(self.bootstrap_servers, self.dead_letter_topic)

    async def newest_in(self, topic: str) -> dict[bytes, Any]:
        """What a changelog says of each key now: its last value, None for a tombstone."""
        found: dict[bytes, Any] = {}
        for record in await read_topic(self.bootstrap_servers, topic):
            found[record.key] = msgspec.json.decode(record.value) if record.value else None
        return found

    async def committed(self, topic: str | None = None) -> dict[int, int]:
        """Committed offsets of the group by partition: of the source topic, or another one."""
        return await committed_offsets(
            self.bootstrap_servers,
            self.settings.app_id,
            topic or self.topic,
            self.settings.partitions,
        )

    async def ends(self, topic: str | None = None) -> dict[int, int]:
        """The ends of the partitions of the source topic, or of another one."""
        return await end_offsets(self.bootstrap_servers, topic or self.topic)

    async def lag(self, topic: str | None = None) -> int:
        """How many offsets the group is behind."""
        ends, committed = await self.ends(topic), await self.committed(topic)
        return sum(end - committed.get(partition, 0) for partition, end in ends.items())

    async def no_lag(self, seconds: float = 30.0) -> None:
        """Wait until everything is committed: of the source, then of the repartition topic."""
        topics = [self.topic]
        if not self.settings.source_keyed:
            topics.append(self.repartition_topic)
        for topic in topics:
            lags: list[int] = []

            async def caught_up(topic: str = topic, lags: list[int] = lags) -> bool:
                lags.append(await self.lag(topic))
                return lags[-1] == 0

            try:
                await wait_until_async(caught_up, seconds, what=f"no lag in {topic}")
            except AssertionError as error:
                raise AssertionError(f"{error}: {lags[-1:]} records behind") from None


class Load:
    """A fleet that sends until it is told to stop; made by :func:`load`."""

    def __init__(self, fleet: Fleet, rate: float) -> None:
        self.fleet = fleet
        self.rate = rate
        self._stop = asyncio.Event()

    @property
    def sent(self) -> int:
        return self.fleet.counts.sent

    @property
    def oracle(self) -> Oracle:
        """What all that has been sent must lead to."""
        oracle = Oracle()
        oracle.accept(self.fleet.oracle().values())
        return oracle

    async def run(self, sender: RecordSender) -> None:
        while not self._stop.is_set():
            count = max(1, int(self.rate * LOAD_INTERVAL_S))
            await sender.send(self.fleet.generate(now_ms(), count), now_ms())
            try:
                async with asyncio.timeout(LOAD_INTERVAL_S):
                    await self._stop.wait()
            except TimeoutError:
                pass
        await sender.flush()

    def stop(self) -> None:
        self._stop.set()


@asynccontextmanager
async def load(world: World, fleet: Fleet, rate: float) -> AsyncIterator[Load]:
    """A fleet's heartbeats while the block runs, all acknowledged when it has ended."""
    running = Load(fleet, rate)
    options = {"request_timeout_ms": LOAD_PATIENCE_MS}
    async with open_sender(world.bootstrap_servers, world.topic, options) as sender:
        task = asyncio.create_task(running.run(sender))
        try:
            yield running
        finally:
            running.stop()
            await task


@contextmanager
def running_workers(directory: Path) -> Iterator[Workers]:
    """A place for a test's workers, all ended with the block."""
    workers = Workers(directory)
    try:
        yield workers
    finally:
        workers.close()
