"""A repair of our own partitions that is broken off, by a rebalance or by the worker's end.

Another worker has written to a changelog of ours, which is read while records still come. What they
changed since the last checkpoint has to be in the next one, or they must not be acknowledged.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from faust.types import TP, ConsumerMessage, Message

from heartbeat_stream.core.expiring import expires_of, version_of
from heartbeat_stream.jobs.memory import Memory
from heartbeat_stream.settings import Settings
from heartbeat_stream.streaming.changelog import ChangelogReader
from heartbeat_stream.streaming.checkpoint import Checkpointer, Delta
from heartbeat_stream.streaming.engine import Engine
from heartbeat_stream.streaming.faust_app import make_app
from heartbeat_stream.streaming.producer import BatchProducer, Outbox, OutRecord
from heartbeat_stream.streaming.tables import StateTable
from tests.support.brokers import on_embedded
from tests.support.kafka_admin import create_topics
from tests.support.topic_reader import read_topic
from tests.support.world import Cluster

pytestmark = on_embedded

SOURCE = TP("source", 0)
LATER_MS = 2_000_000_000_000
PATIENCE_S = 20.0


class Acks:
    """What was acknowledged to the consumer."""

    def __init__(self) -> None:
        self.offsets: list[int] = []

    def ack(self, message: Message) -> bool:
        self.offsets.append(message.offset)
        return True

    async def commit(self) -> bool:
        return True


class KeepingJob:
    """Holds one partition in memory as the jobs do, and is slow to load it when told to be."""

    name = "keeping"

    def __init__(self, table: StateTable) -> None:
        self.tables: Sequence[StateTable] = (table,)
        self.loads = 0
        self.memory = Memory(table, 0)
        self.owned = self.parked = False
        self.loading = asyncio.Event()
        self.may_load = asyncio.Event()
        self.may_load.set()
        self.loaded = asyncio.Event()

    async def load(self, partition: int) -> None:
        keep = self.owned
        self.loads += 1
        self.loading.set()
        await self.may_load.wait()
        await self.memory.load(keep=keep)
        self.parked = False
        self.loaded.set()

    def own(self, partition: int) -> None:
        self.owned = True

    async def quiesce(self, timeout_s: float) -> None:
        """As where a write in flight takes longer than the repair, which ends meanwhile."""
        self.owned = False
        if self.loading.is_set():
            self.may_load.set()
            await self.loaded.wait()
            await asyncio.sleep(0)

    def park(self, partition: int) -> None:
        self.owned, self.parked = False, True

    def drop(self, partition: int) -> None:
        self.park(partition)

    def deltas(self) -> list[Delta]:
        return [] if self.parked else self.memory.deltas()


class Scene(NamedTuple):
    """An engine with one partition, a record of which is held, and what is known of it."""

    brokers: str
    engine: Engine
    checkpointer: Checkpointer
    job: KeepingJob
    acks: Acks
    producer: BatchProducer

    def take_in(self, offset: int) -> None:
        """A record has come, and changed state."""
        self.job.memory.put(b"key-%d" % offset, offset, LATER_MS, b"")
        self.checkpointer.hold(
            ConsumerMessage(
                SOURCE.topic, SOURCE.partition, offset, 0.0, 0, None, None, None, None, tp=SOURCE
            )
        )

    async def someone_writes(self) -> None:
        changelog = self.job.tables[0].changelog
        await self.producer.publish(changelog, 0, [OutRecord(b"foreign", b"\0" * 16)], 1)

    async def in_changelog(self) -> set[bytes]:
        records = await read_topic(self.brokers, self.job.tables[0].changelog)
        return {record.key or b"" for record in records}

    async def sleep(self, _seconds: float) -> None:
        """Between two checkpoints: there is one, and no more once a repair has begun."""
        await asyncio.sleep(0)
        if self.job.loads > 1:
            await asyncio.Event().wait()


@pytest.fixture
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StateTable]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        app = make_app(Settings(app_id=request.node.name), tmp_path, listening)
    table = app.state_table("seen", version_of, 1, expires_of)
    yield table
    table.store.close_all()


@pytest.fixture
async def scene(cluster: Cluster, table: StateTable) -> AsyncIterator[Scene]:
    brokers = cluster.bootstrap_servers
    await create_topics(brokers, {table.changelog: 1})
    producer = BatchProducer(client_id="test", request_timeout_ms=10_000, bootstrap_servers=brokers)
    await producer.start()
    acks, job = Acks(), KeepingJob(table)
    checkpointer = Checkpointer(producer, Outbox(producer), acks, lambda: 1)
    engine = Engine(
        [job],
        checkpointer,
        ChangelogReader({"bootstrap_servers": brokers}),
        checkpoint_interval_s=1.0,
        release_timeout_s=60.0,
    )
    await engine.recover({table.changelog: {0}})
    job.loading.clear()
    job.loaded.clear()
    yield Scene(brokers, engine, checkpointer, job, acks, producer)
    await producer.stop()


async def repairing(scene: Scene) -> asyncio.Task[None]:
    """Checkpoints that go on, the first of which has found that somebody else has written, with a
    record that came in while that is read."""
    await scene.someone_writes()
    scene.take_in(1)
    scene.job.may_load.clear()
    checkpoints = asyncio.create_task(scene.engine.checkpoint_forever(scene.sleep))
    async with asyncio.timeout(PATIENCE_S):
        await scene.job.loading.wait()
    assert scene.acks.offsets == [1]
    scene.take_in(2)
    return checkpoints


async def test_by_a_rebalance(scene: Scene) -> None:
    checkpoints = await repairing(scene)
    async with asyncio.timeout(PATIENCE_S):
        await scene.engine.release({SOURCE})
    assert scene.acks.offsets == [1, 2]
    assert {b"key-1", b"key-2"} <= await scene.in_changelog()
    assert scene.job.parked, "it is given up, and nothing of it may be written any more"
    checkpoints.cancel()


async def test_by_a_rebalance_that_is_over_before_it(scene: Scene) -> None:
    checkpoints = await repairing(scene)
    scene.job.loading.clear()  # nobody waits for it
    async with asyncio.timeout(PATIENCE_S):
        await scene.engine.release({SOURCE})
        assert {b"key-1", b"key-2"} <= await scene.in_changelog()
        scene.job.may_load.set()
        await scene.job.loaded.wait()
        await asyncio.sleep(0)
    assert scene.job.parked
    checkpoints.cancel()


async def test_by_the_end_of_the_worker(scene: Scene) -> None:
    checkpoints = await repairing(scene)
    checkpoints.cancel()
    await asyncio.wait({checkpoints})
    scene.job.loading.clear()
    async with asyncio.timeout(PATIENCE_S):
        await scene.engine.finish(60.0)
    assert scene.acks.offsets == [1, 2]
    assert {b"key-1", b"key-2"} <= await scene.in_changelog()
