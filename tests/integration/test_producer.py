"""The batch producer: many batches for one partition at once."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from heartbeat_stream.streaming.producer import BatchProducer, Outbox, OutRecord, RecordRefused
from tests.support.brokers import on_kafka
from tests.support.kafka_admin import alter_topic_config
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


@on_kafka
async def test_batches_that_are_split_are_told_in_the_order_of_their_offsets(
    cluster: Cluster, producer: BatchProducer, topic: str
) -> None:
    """What has to be split stands behind the batch that was handed over after it."""
    limit = {"max.message.bytes": f"{HALF_BYTES + 50_000}"}
    await alter_topic_config(cluster.bootstrap_servers, topic, limit)
    # Two batches: the first one is too large, the second one is not.
    sizes = [HALF_BYTES // 2] * 3 + [HALF_BYTES]
    records = [OutRecord(b"%d" % number, b"x" * size) for number, size in enumerate(sizes)]
    spans = await producer.publish(topic, 0, records, timestamp_ms=None)
    assert len(spans) == 3
    ends = [0]
    for span in spans:
        assert span.first_offset == ends[-1]
        ends.append(span.first_offset + span.records)
    found = await read_topic(cluster.bootstrap_servers, topic)
    assert [one.key for one in found] != [record.key for record in records]
    assert ends[-1] == len(found) == len(records)


@on_kafka
async def test_what_a_topic_will_never_take_is_not_tried_again(
    cluster: Cluster, producer: BatchProducer, topic: str
) -> None:
    await alter_topic_config(cluster.bootstrap_servers, topic, {"max.message.bytes": "64"})
    record = OutRecord(b"key", b"value")
    with pytest.raises(RecordRefused, match=rf"{topic} takes no record of 8 bytes: raise its max"):
        await producer.publish(topic, 0, [record, record], timestamp_ms=None)
    outbox = Outbox(producer)
    # Nor is one that cannot be made smaller.
    await outbox.put(topic, 0, [record], shrink=lambda record: record)
    with pytest.raises(RecordRefused):
        await outbox.settled()
