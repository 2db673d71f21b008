"""Records as Kafka's batches hold them: the same as aiokafka's own, and in the same order."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from heartbeat_stream.streaming.fetching import fetch_raw_records
from heartbeat_stream.streaming.topics import TopicSpec
from tests.support.wait import wait_until_async
from tests.support.world import World

#: Records of the batches that are written one after the other.
BATCHES = (1, 3, 200, 1, 50)


@asynccontextmanager
async def raw_consumer(world: World, **options: Any) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(bootstrap_servers=world.bootstrap_servers, **options)
    await consumer.start()
    try:
        fetch_raw_records(consumer)
        consumer.assign([TopicPartition(world.topic, 0)])
        yield consumer
    finally:
        await consumer.stop()


async def batches_from(
    consumer: AIOKafkaConsumer, offset: int, end: int, **options: Any
) -> list[list[Any]]:
    """What the consumer answers from an offset on, until its position is the end."""
    [tp] = consumer.assignment()
    consumer.seek(tp, offset)
    batches: list[list[Any]] = []

    async def all_read() -> bool:
        for found in (await consumer.getmany(timeout_ms=100, **options)).values():
            batches.extend(found)
        return bool(await consumer.position(tp) == end)

    await wait_until_async(all_read, what=f"position {end}")
    return batches


def facts(records: Iterable[Any]) -> list[tuple[Any, ...]]:
    return [
        (one.offset, one.timestamp, one.timestamp_type, one.key, one.value, tuple(one.headers))
        for one in records
    ]


async def write_batches(producer: AIOKafkaProducer, topic: str) -> int:
    """Write records of all kinds; how many."""
    number = 0
    for size in BATCHES:
        batch = producer.create_batch()
        for _ in range(size):
            kind = number % 4
            batch.append(
                timestamp=1_796_000_000_000 + number,
                key=None if kind == 1 else b"k%d" % number,
                value=None if kind == 2 else b"v%d" % number * 20,
                headers=[("h", b"%d" % number), ("h", b"")] if kind == 3 else [],
            )
            number += 1
        await (await producer.send_batch(batch, topic, partition=0))
    return number


@pytest.mark.parametrize("compression", [None, "gzip"])
async def test_the_same_records_as_aiokafkas(world: World, compression: str | None) -> None:
    await world.create_topics(TopicSpec(world.topic, 1, 1))
    async with world.producer(compression_type=compression) as producer:
        count = await write_batches(producer, world.topic)
    async with raw_consumer(world) as raw:
        batches = await batches_from(raw, 0, count)
    assert [len(batch) for batch in batches] == list(BATCHES)
    plain = AIOKafkaConsumer(bootstrap_servers=world.bootstrap_servers)
    await plain.start()
    tp = TopicPartition(world.topic, 0)
    plain.assign([tp])
    plain.seek(tp, 0)
    records: list[Any] = []
    while len(records) < count:
        records += (await plain.getmany(timeout_ms=1_000)).get(tp, [])
    await plain.stop()
    assert facts(record for batch in batches for record in batch) == facts(records)


async def test_reading_from_within_a_batch(world: World) -> None:
    await world.create_topics(TopicSpec(world.topic, 1, 1))
    async with world.producer() as producer:
        count = await write_batches(producer, world.topic)
    async with raw_consumer(world) as raw:
        for start in (0, 2, 100, 203, 204, count - 1):
            batches = await batches_from(raw, start, count)
            offsets = [record.offset for batch in batches for record in batch]
            assert offsets == list(range(start, count))


async def test_a_limit_is_one_of_batches_and_loses_nothing(world: World) -> None:
    await world.create_topics(TopicSpec(world.topic, 1, 1))
    async with world.producer() as producer:
        count = await write_batches(producer, world.topic)
    async with raw_consumer(world) as raw:
        batches = await batches_from(raw, 0, count, max_records=1)
    assert [len(batch) for batch in batches] == list(BATCHES)


@pytest.mark.kafka
@pytest.mark.parametrize("cluster", ["kafka"], indirect=True)
async def test_transactions(world: World) -> None:
    await world.create_topics(TopicSpec(world.topic, 1, 1))

    class Abort(Exception):
        pass

    async with world.producer(transactional_id=world.topic) as producer:
        for number in range(6):
            try:
                async with producer.transaction():
                    await producer.send_and_wait(world.topic, b"%d" % number, partition=0)
                    if number % 3 == 1:
                        raise Abort
            except Abort:
                pass
    end = 12  # each record is followed by a marker
    for level, values in (
        ("read_uncommitted", [b"0", b"1", b"2", b"3", b"4", b"5"]),
        ("read_committed", [b"0", b"2", b"3", b"5"]),
    ):
        async with raw_consumer(world, isolation_level=level) as raw:
            batches = await batches_from(raw, 0, end)
        assert [record.value for batch in batches for record in batch] == values
