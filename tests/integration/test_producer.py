"""The batch producer: many batches for one partition at once."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from heartbeat_stream.streaming.producer import BatchProducer, OutRecord
from tests.support.topic_reader import read_topic
from tests.support.world import Cluster

#: As many as an outbox has under way, all for one partition, each in two halves.
BATCHES = 64
HALF_BYTES = 300_000


@pytest.fixture
async def topic(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    name = request.node.name.replace("[", ".").replace("]", "")
    admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    await admin.start()
    await admin.create_topics([NewTopic(name, 1, 1)])
    await admin.close()
    return str(name)


@pytest.fixture
async def producer(cluster: Cluster) -> AsyncIterator[BatchProducer]:
    producer = BatchProducer(
        client_id="test",
        # Far more than a batch takes, less than all of them together.
        request_timeout_ms=2_000,
        bootstrap_servers=cluster.bootstrap_servers,
    )
    await producer.start()
    yield producer
    await producer.stop()


async def test_batches_of_a_partition_are_sent_in_turn(
    cluster: Cluster, producer: BatchProducer, topic: str
) -> None:
    def records(number: int) -> list[OutRecord]:
        return [OutRecord(b"%d" % number, b"%c" % half * HALF_BYTES) for half in b"ab"]

    async def publish(number: int) -> Any:
        return await producer.publish(topic, 0, records(number), timestamp_ms=None)

    spans = await asyncio.gather(*(publish(number) for number in range(BATCHES)))
    offsets = [span.first_offset for of_one in spans for span in of_one]
    assert offsets == list(range(2 * BATCHES))
    found = await read_topic(cluster.bootstrap_servers, topic)
    assert [(one.key, one.value[:1]) for one in found] == [
        (b"%d" % number, half) for number in range(BATCHES) for half in (b"a", b"b")
    ]
