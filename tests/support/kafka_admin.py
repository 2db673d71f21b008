"""What tests ask of a Kafka cluster and do to it, each call a connection of its own.

All with aiokafka's admin client, which knows enough of it in 0.14. What it does not know:
incremental changes of a configuration (so `alter_topic_config` replaces all of it), elections of
leaders, and moving replicas. The embedded broker has a part of these only: see
`heartbeat_stream/local/broker.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, for_code

from tests.support.wait import wait_until_async

SECONDS = 20.0


@asynccontextmanager
async def admin(bootstrap_servers: str) -> AsyncIterator[AIOKafkaAdminClient]:
    """A connected admin client."""
    client = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
    await client.start()
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def reader(bootstrap_servers: str, **options: Any) -> AsyncIterator[AIOKafkaConsumer]:
    """A connected consumer without a group and without a topic."""
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap_servers, **options)
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


def _raise_for(code: int, message: object) -> None:
    if code:
        raise for_code(code)(message)


async def create_topics(
    bootstrap_servers: str,
    topics: Mapping[str, int],
    *,
    replication_factor: int = 1,
    config: Mapping[str, str] | None = None,
) -> None:
    """Create topics, name to number of partitions; return once each partition has a leader.

    Raises what the broker says, TopicAlreadyExistsError for one.
    """
    new = [
        NewTopic(name, partitions, replication_factor, topic_configs=dict(config or {}))
        for name, partitions in topics.items()
    ]
    async with admin(bootstrap_servers) as client:
        response = await client.create_topics(new)
        for name, code, *rest in response.topic_errors:
            _raise_for(code, f"{name}: {rest}")

        async def have_leaders() -> bool:
            described = await client.describe_topics(list(topics))
            return all(
                not topic["error_code"]
                and len(topic["partitions"]) == topics[topic["topic"]]
                and all(partition["leader"] >= 0 for partition in topic["partitions"])
                for topic in described
            )

        await wait_until_async(have_leaders, SECONDS, what=f"leaders of {sorted(topics)}")


async def delete_topics(bootstrap_servers: str, *topics: str) -> None:
    """Delete topics; return once the cluster lists them no more. Raises what the broker says."""
    async with admin(bootstrap_servers) as client:
        response = await client.delete_topics(list(topics))
        for name, code, *_ in response.topic_error_codes:
            _raise_for(code, name)

        async def are_gone() -> bool:
            return not set(topics) & set(await client.list_topics())

        await wait_until_async(are_gone, SECONDS, what=f"end of {topics}")


async def list_topics(bootstrap_servers: str) -> set[str]:
    """All topics, the cluster's own included."""
    async with admin(bootstrap_servers) as client:
        return set(await client.list_topics())


async def partition_count(bootstrap_servers: str, topic: str) -> int:
    """Partitions of the topic. Raises UnknownTopicOrPartitionError where there is none."""
    async with admin(bootstrap_servers) as client:
        (described,) = await client.describe_topics([topic])
        _raise_for(described["error_code"], topic)
        return len(described["partitions"])


async def create_partitions(bootstrap_servers: str, topic: str, total: int) -> None:
    """Raise the topic's number of partitions to `total`; return once all have a leader."""
    async with admin(bootstrap_servers) as client:
        await client.create_partitions({topic: NewPartitions(total)})

        async def have_leaders() -> bool:
            (described,) = await client.describe_topics([topic])
            leaders = [partition["leader"] for partition in described["partitions"]]
            return len(leaders) == total and min(leaders) >= 0

        await wait_until_async(have_leaders, SECONDS, what=f"{total} partitions of {topic}")


async def topic_config(bootstrap_servers: str, topic: str) -> dict[str, str | None]:
    """The topic's configuration as it is in force, defaults included."""
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    async with admin(bootstrap_servers) as client:
        (response,) = await client.describe_configs([resource])
        ((code, message, _, _, entries),) = response.resources
        _raise_for(code, f"{topic}: {message}")
        return {name: value for name, value, *_ in entries}


async def alter_topic_config(bootstrap_servers: str, topic: str, config: Mapping[str, str]) -> None:
    """Give the topic this configuration. What it does not name goes back to the default."""
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, dict(config))
    async with admin(bootstrap_servers) as client:
        (response,) = await client.alter_configs([resource])
        for code, message, *_ in response.resources:
            _raise_for(code, f"{topic}: {message}")


async def delete_records(
    bootstrap_servers: str, topic: str, partition: int, before_offset: int
) -> int:
    """Delete the records before an offset (-1: all); the partition's first offset after that."""
    place = TopicPartition(topic, partition)
    async with admin(bootstrap_servers) as client:
        deleted = await client.delete_records({place: RecordsToDelete(before_offset)})
        return int(deleted[place])


async def beginning_offsets(bootstrap_servers: str, topic: str) -> dict[int, int]:
    """The first offset that is there, of each partition."""
    places = await _places(bootstrap_servers, topic)
    async with reader(bootstrap_servers) as consumer:
        offsets = await consumer.beginning_offsets(places)
        return {place.partition: offset for place, offset in offsets.items()}


async def end_offsets(bootstrap_servers: str, topic: str) -> dict[int, int]:
    """The offset that the next record will get, of each partition. Wrong on the embedded broker."""
    places = await _places(bootstrap_servers, topic)
    async with reader(bootstrap_servers) as consumer:
        offsets = await consumer.end_offsets(places)
        return {place.partition: offset for place, offset in offsets.items()}


async def _places(bootstrap_servers: str, topic: str) -> list[TopicPartition]:
    count = await partition_count(bootstrap_servers, topic)
    return [TopicPartition(topic, partition) for partition in range(count)]


async def committed_offset(
    bootstrap_servers: str, group: str, topic: str, partition: int
) -> int | None:
    """What the group has committed for this partition; None where it has committed nothing.

    Waits for the group's coordinator, which a new cluster takes a moment to have.
    """
    place = TopicPartition(topic, partition)
    offset = -1
    async with admin(bootstrap_servers) as client:

        async def ask() -> bool:
            nonlocal offset
            try:
                offsets = await client.list_consumer_group_offsets(group, partitions=[place])
            except KafkaError as error:
                if not error.retriable:
                    raise
                return False
            offset = offsets[place].offset if place in offsets else -1
            return True

        await wait_until_async(ask, SECONDS, what=f"coordinator of {group}", every=0.1)
    return offset if offset >= 0 else None


async def leader_of(bootstrap_servers: str, topic: str, partition: int) -> int:
    """The node that leads a partition now."""
    async with admin(bootstrap_servers) as client:
        (described,) = await client.describe_topics([topic])
        (found,) = [p for p in described["partitions"] if p["partition"] == partition]
        return int(found["leader"])


async def coordinator_of(bootstrap_servers: str, group: str) -> int:
    """The node that coordinates a group now."""
    async with admin(bootstrap_servers) as client:
        return int(await client.find_coordinator(group))
