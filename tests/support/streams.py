"""A world for the jobs that judge messages: their topics, records sent, what came out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from aiokafka.structs import ConsumerRecord

from heartbeat_stream.core.partition import partition_for
from heartbeat_stream.jobs.catalogue import jobs_topics
from heartbeat_stream.streaming.topics import dead_letter_topic
from tests.support.topic_reader import read_topic
from tests.support.wait import wait_until_async
from tests.support.world import World

__all__ = [
    "Sent",
    "headers_of",
    "lag_of_jobs",
    "no_lag_of_jobs",
    "prepare_jobs",
    "send",
    "source",
    "written",
]


class Sent(NamedTuple):
    """A record for a source topic. Without a key the partitions take turns."""

    value: bytes | None
    at_ms: int
    key: bytes | None = None
    partition: int | None = None


async def prepare_jobs(world: World, jobs: str, **environment: object) -> World:
    """Have a worker run these jobs, on topics of this test's own, which are made here."""
    name = world.settings.app_id
    world.set(
        jobs=jobs,
        market_topic=f"{name}.market",
        market_unique_topic=f"{name}.market.unique",
        market_continuity_topic=f"{name}.market.continuity",
        messages_topic=f"{name}.messages",
        messages_output_topic=f"{name}.messages.printed",
        tracking_topic=f"{name}.tracking",
        tracking_table=f"{name}_event",
    )
    world.set(**environment)
    settings = world.settings
    specs = {dead_letter_topic(settings).name: dead_letter_topic(settings)}
    for topics in jobs_topics(settings):
        specs |= {spec.name: spec for spec in topics.all({}) if spec.name in topics.named()}
    await world.create_topics(*specs.values())
    if "heartbeats" in settings.jobs:
        await world.table.create()
    return world


def source(world: World, job: str) -> str:
    """The source topic of a job."""
    (found,) = [one.source.name for one in jobs_topics(world.settings) if one.job == job]
    return found


async def send(world: World, topic: str, records: Iterable[Sent]) -> None:
    """Send records in their order, and return when they are acknowledged."""
    partitions = world.settings.partitions
    async with world.producer() as producer:
        futures = []
        for number, one in enumerate(records):
            partition = one.partition
            if partition is None:
                key = one.key
                partition = number % partitions if key is None else partition_for(key, partitions)
            futures.append(
                await producer.send(
                    topic,
                    one.value,
                    key=one.key,
                    partition=partition,
                    timestamp_ms=one.at_ms,
                )
            )
        for future in futures:
            await future


async def lag_of_jobs(world: World) -> int:
    """How many offsets the group is behind, in the topics that the jobs read."""
    lags = [
        await world.lag(topic) for topics in jobs_topics(world.settings) for topic in topics.read
    ]
    return sum(lags)


async def no_lag_of_jobs(world: World, seconds: float = 60.0) -> None:
    """Wait until everything is committed: of each source, and then of what is behind it."""
    for topics in jobs_topics(world.settings):
        for topic in dict.fromkeys((topics.source.name, topics.state)):

            async def caught_up(topic: str = topic) -> bool:
                return await world.lag(topic) == 0

            await wait_until_async(caught_up, seconds, what=f"no lag in {topic}")


def headers_of(record: ConsumerRecord) -> Mapping[str, str]:
    return {name: value.decode() for name, value in record.headers}


async def written(world: World, topic: str) -> Sequence[ConsumerRecord]:
    """All that is in a topic now."""
    return await read_topic(world.bootstrap_servers, topic)
