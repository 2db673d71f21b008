"""A checkpoint of more keys than are to be in memory at once goes through them in rounds."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from aiokafka.errors import KafkaError, KafkaTimeoutError
from faust.types import Message

from heartbeat_stream.settings import Settings
from heartbeat_stream.streaming.checkpoint import Checkpointer
from heartbeat_stream.streaming.faust_app import make_app
from heartbeat_stream.streaming.producer import BatchProducer, Outbox, OutRecord
from heartbeat_stream.streaming.store import Position
from heartbeat_stream.streaming.tables import StateTable
from tests.support.brokers import on_embedded
from tests.support.kafka_admin import create_topics
from tests.support.topic_reader import end_offsets
from tests.support.world import Cluster

pytestmark = on_embedded

#: Two rounds and a half.
KEYS = 25_000
THIRD_ROUND = 20_000
TO_BE_WRITTEN_AGAIN = Position(-1, 0, first=-1)


class Changes:
    """Keys that changed in partition 0. Fails at one of them, if so told, as a broker does."""

    partition = 0

    def __init__(self, table: StateTable, count: int, fails_at: int | None = None) -> None:
        self.table = table
        self._entries = [(b"7:%05d" % number, b"%d" % number) for number in range(count)]
        self._fails_at = fails_at
        self.undone = False
        self.most_ahead = 0

    def __len__(self) -> int:
        return len(self._entries)

    def encode(self, start: int, stop: int) -> list[OutRecord]:
        kept = sum(1 for _ in self.table.store.partitions[0].scan())
        self.most_ahead = max(self.most_ahead, stop - kept)
        if self._fails_at is not None and start <= self._fails_at < stop:
            raise KafkaTimeoutError
        return [OutRecord(key, value) for key, value in self._entries[start:stop]]

    def undo(self) -> None:
        self.undone = True


class NoConsumer:
    """Nothing was fetched, so there is nothing to acknowledge."""

    def ack(self, message: Message) -> bool:
        raise AssertionError(message)

    async def commit(self) -> bool:
        return True


@pytest.fixture
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StateTable]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        app = make_app(Settings(app_id=request.node.name), tmp_path, listening)
    table = app.state_table("latest", int, 1)
    table.store.open(0).write([], TO_BE_WRITTEN_AGAIN)
    yield table
    table.store.close_all()


@pytest.fixture
async def checkpointer(cluster: Cluster, table: StateTable) -> AsyncIterator[Checkpointer]:
    await create_topics(cluster.bootstrap_servers, {table.changelog: 1})
    producer = BatchProducer(
        client_id="test", request_timeout_ms=10_000, bootstrap_servers=cluster.bootstrap_servers
    )
    await producer.start()
    checkpointer = Checkpointer(producer, Outbox(producer), NoConsumer(), lambda: 1)
    checkpointer.expected[table.name, 0] = 0
    yield checkpointer
    await producer.stop()


async def test_all_of_it_is_in_the_changelog_and_on_disk(
    cluster: Cluster, table: StateTable, checkpointer: Checkpointer
) -> None:
    changes = Changes(table, KEYS)
    await checkpointer.run(lambda: [changes])
    ends = await end_offsets(cluster.bootstrap_servers, table.changelog)
    assert list(ends.values()) == [KEYS]
    store = table.store.partitions[0]
    assert sum(1 for _ in store.scan()) == KEYS
    assert store.position == Position(KEYS - 1, 1, first=store.log_start)
    assert not changes.undone


async def test_it_waits_for_the_disk_between_rounds(
    table: StateTable, checkpointer: Checkpointer
) -> None:
    changes = Changes(table, KEYS)
    await checkpointer.run(lambda: [changes])
    assert changes.most_ahead < KEYS / 2


async def test_one_that_fails_half_way_claims_no_more_than_it_has_done(
    table: StateTable, checkpointer: Checkpointer
) -> None:
    changes = Changes(table, KEYS, fails_at=THIRD_ROUND)
    with pytest.raises(KafkaError):
        await checkpointer.run(lambda: [changes])
    assert changes.undone
    store = table.store.partitions[0]
    # A worker that starts now finds out that the changelog is still to be filled.
    assert store.position == Position(THIRD_ROUND - 1, 1, TO_BE_WRITTEN_AGAIN.first)
    await checkpointer.run(lambda: [Changes(table, KEYS)])
    assert store.position == Position(THIRD_ROUND + KEYS - 1, 1, first=store.log_start)
    assert sum(1 for _ in store.scan()) == KEYS
