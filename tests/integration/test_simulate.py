"""A simulated fleet against a real broker: what is in the topic is what the result says."""

import asyncio
import time
import uuid
from collections import Counter
from typing import NamedTuple

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.partitioner import DefaultPartitioner

from heartbeat_stream.core.heartbeat import Bounds, Heartbeat, Rejected, decode, room_key
from heartbeat_stream.core.reasons import Reason
from heartbeat_stream.local.broker import Broker
from heartbeat_stream.local.simulate import SendError, SimulationProgress, simulate
from tests.support.wait import wait_until_async
from tests.support.world import Cluster

PARTITIONS = 4
BOUNDS = Bounds(1_420_070_400_000, time.time_ns() // 1_000_000 + 3_600_000)


class Sent(NamedTuple):
    """A record as it stands in the topic."""

    partition: int
    key: bytes | None
    value: bytes


@pytest.fixture
def brokers(cluster: Cluster) -> str:
    return cluster.bootstrap_servers


@pytest.fixture
async def topic(brokers: str) -> str:
    """A new topic with ``PARTITIONS`` partitions."""
    name = f"simulate-{uuid.uuid4()}"
    await create(brokers, name)
    return name


async def create(brokers: str, topic: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=brokers)
    await admin.start()
    await admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
    await admin.close()


async def topics(brokers: str) -> set[str]:
    consumer = AIOKafkaConsumer(bootstrap_servers=brokers)
    await consumer.start()
    try:
        return set(await consumer.topics())
    finally:
        await consumer.stop()


async def read(brokers: str, topic: str, at_least: int) -> list[Sent]:
    """Everything in the topic, once there are so many records. Fails if they do not come."""
    consumer = AIOKafkaConsumer(bootstrap_servers=brokers, auto_offset_reset="earliest")
    await consumer.start()
    found: list[Sent] = []

    async def fetch() -> bool:
        for records in (await consumer.getmany(timeout_ms=100)).values():
            found.extend(Sent(it.partition, it.key, it.value) for it in records)
        return len(found) >= at_least

    try:
        consumer.assign([TopicPartition(topic, partition) for partition in range(PARTITIONS)])
        await wait_until_async(fetch, 20, what=f"{at_least} records in {topic}")
    finally:
        await consumer.stop()
    return found


def newest_of(records: list[Sent]) -> tuple[dict[bytes, Heartbeat], Counter[Reason]]:
    newest: dict[bytes, Heartbeat] = {}
    broken: Counter[Reason] = Counter()
    for _, key, value in records:
        try:
            heartbeat = decode(value, BOUNDS)
        except Rejected as rejected:
            broken[rejected.reason] += 1
            continue
        room = room_key(heartbeat.hotel_id, heartbeat.room_id)
        if key is not None and key != room:
            broken[Reason.WRONG_KEY] += 1
        elif room not in newest or heartbeat.ts_ms > newest[room].ts_ms:
            newest[room] = heartbeat
    return newest, broken


async def test_unkeyed_records_go_to_all_partitions_in_turn(brokers: str, topic: str) -> None:
    seen: list[SimulationProgress] = []
    result = await simulate(
        brokers=brokers,
        topic=topic,
        seconds=1.5,
        hotels=2,
        rooms=30,
        rate=4000,
        on_progress=seen.append,
    )
    assert result.counts.sent == 6000
    assert 1.4 < result.seconds < 10
    assert len(seen) >= 1
    records = await read(brokers, topic, 6000)
    assert len(records) == 6000
    assert {record.key for record in records} == {None}
    assert Counter(record.partition for record in records) == dict.fromkeys(range(4), 1500)
    newest, broken = newest_of(records)
    assert newest == result.oracle
    assert broken == result.counts.broken


async def test_keyed_records_go_where_kafkas_own_producers_put_them(
    brokers: str, topic: str
) -> None:
    result = await simulate(
        brokers=brokers, topic=topic, seconds=0.5, hotels=3, rooms=40, rate=20_000, keyed=True
    )
    records = await read(brokers, topic, 10_000)
    every = list(range(PARTITIONS))
    for partition, key, _ in records:
        assert partition == DefaultPartitioner()(key, every, every)
    assert len({record.key for record in records if record.key in result.oracle}) == 120
    newest, broken = newest_of(records)
    assert newest == result.oracle
    assert broken == result.counts.broken


async def test_an_early_stop_gives_a_result_of_what_was_sent(brokers: str, topic: str) -> None:
    stop = asyncio.Event()
    result = await simulate(
        brokers=brokers,
        topic=topic,
        seconds=3600,
        rate=5000,
        stop=stop,
        on_progress=lambda _: stop.set(),
    )
    records = await read(brokers, topic, result.counts.sent)
    assert 0 < result.counts.sent == len(records) < 60_000
    assert newest_of(records)[0] == result.oracle


async def test_when_cancelled_it_still_sends_what_it_has_made(brokers: str, topic: str) -> None:
    seen: list[SimulationProgress] = []

    def cancel(progress: SimulationProgress) -> None:
        seen.append(progress)
        task.cancel()

    task = asyncio.create_task(
        simulate(brokers=brokers, topic=topic, seconds=3600, rate=1_000_000, on_progress=cancel)
    )
    with pytest.raises(asyncio.CancelledError):
        await task
    made = seen[0].counts.sent
    assert len(await read(brokers, topic, made)) == made


async def test_no_result_for_what_the_broker_has_not_acknowledged() -> None:
    with Broker() as broker:
        await create(broker.bootstrap_servers, "heartbeat")
        with pytest.raises(
            SendError, match=r"cannot write to topic heartbeat .* not acknowledged in time"
        ):
            await simulate(
                brokers=broker.bootstrap_servers,
                topic="heartbeat",
                seconds=1,  # so on_progress is called when the last records were handed over
                on_progress=lambda _: broker.stop(),
                security={"request_timeout_ms": 1000},
            )


@pytest.mark.slow
async def test_it_can_be_stopped_while_the_broker_is_away() -> None:
    with Broker() as broker:
        await create(broker.bootstrap_servers, "heartbeat")
        stop = asyncio.Event()
        seen: list[SimulationProgress] = []
        task = asyncio.create_task(
            simulate(
                brokers=broker.bootstrap_servers,
                topic="heartbeat",
                seconds=3600,
                rate=50_000,
                stop=stop,
                on_progress=seen.append,
            )
        )
        await wait_until_async(lambda: seen, 10, what="it sends")
        broker.stop()
        before = seen[0].counts.sent
        await wait_until_async(lambda: seen[0].counts.sent > before, 10, what="more to send")
        stop.set()
        async with asyncio.timeout(20):
            with pytest.raises(SendError, match="has not acknowledged all"):
                await task


async def test_a_topic_that_is_not_there_is_an_error_and_not_created(brokers: str) -> None:
    nowhere = f"nowhere-{uuid.uuid4()}"
    with pytest.raises(SendError, match=rf"no topic {nowhere} at .*`heartbeat-stream init`"):
        await simulate(brokers=brokers, topic=nowhere, seconds=1)
    assert nowhere not in await topics(brokers)


async def test_no_broker_is_an_error_of_one_line() -> None:
    with pytest.raises(SendError, match=r"no broker answers at 127\.0\.0\.1:1: start one") as error:
        await simulate(brokers="127.0.0.1:1", topic="any", seconds=1)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("seconds", "rate"), [(0, 1), (1, 0), (-1, 5), (1, float("nan"))])
async def test_numbers_that_make_no_sense(seconds: float, rate: float) -> None:
    with pytest.raises(ValueError, match="must be above 0"):
        await simulate(brokers="127.0.0.1:1", topic="any", seconds=seconds, rate=rate)
