"""Topics on Apache Kafka: what it refuses, what it tells of them, what becomes of them later."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions

from heartbeat_stream.settings import Settings
from heartbeat_stream.streaming.topic_admin import (
    TopicError,
    broker_count,
    describe_topics,
    ensure_topics,
    kafka_admin,
)
from heartbeat_stream.streaming.topics import TopicSpec, all_topics
from tests.support.world import Cluster

pytestmark = pytest.mark.kafka

Work = Callable[[AIOKafkaAdminClient, Settings], Awaitable[Any]]


@pytest.fixture
def environ(apache_kafka: Cluster, on_stack: dict[str, str]) -> dict[str, str]:
    return {**on_stack, "HEARTBEAT_BROKERS": apache_kafka.bootstrap_servers}


@pytest.fixture
def do(environ: dict[str, str]) -> Callable[[Work], Any]:
    """Runs a piece of work with an admin client."""

    def do(work: Work) -> Any:
        async def connected() -> Any:
            settings = Settings.load(environ)
            async with kafka_admin(settings) as admin:
                return await work(admin, settings)

        return asyncio.run(connected())

    return do


def program(command: str, environ: dict[str, str], directory: Path) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "heartbeat_stream", command],
        env={**os.environ, **environ},
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


async def described(admin: AIOKafkaAdminClient, settings: Settings) -> Any:
    return await describe_topics(admin, [spec.name for spec in all_topics(settings, {})])


def test_what_kafka_refuses_is_said_with_its_reason(do: Callable[[Work], Any]) -> None:
    async def create(admin: AIOKafkaAdminClient, settings: Settings) -> None:
        brokers = await broker_count(admin)
        await ensure_topics(admin, [TopicSpec(settings.topic, 1, brokers + 1)])

    with pytest.raises(TopicError, match=r'^topic "t\w+.heartbeat" cannot be created: .+') as error:
        do(create)
    assert "\n" not in str(error.value)


def test_init_says_it_in_one_line(environ: dict[str, str], tmp_path: Path) -> None:
    environ = {**environ, "HEARTBEAT_REPLICATION_FACTOR": "99"}
    code, out, err = program("init", environ, tmp_path)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith(f'heartbeat-stream init: topic "{environ["HEARTBEAT_TOPIC"]}"')


def test_check_foresees_it(environ: dict[str, str], tmp_path: Path) -> None:
    environ = {**environ, "HEARTBEAT_REPLICATION_FACTOR": "99"}
    code, out, err = program("check", environ, tmp_path)
    assert (code, err) == (1, "")
    assert "HEARTBEAT_REPLICATION_FACTOR is 99" in out


def test_kafka_tells_the_retention_that_nobody_set(do: Callable[[Work], Any]) -> None:
    async def create(admin: AIOKafkaAdminClient, settings: Settings) -> Any:
        await ensure_topics(admin, [TopicSpec(settings.topic, 1, 1)])
        return (await described(admin, settings))[settings.topic]

    source = do(create)
    assert source.retention_ms is not None
    assert source.min_insync_replicas is not None


def test_a_source_that_init_creates_counts_for_the_repartition_topic(
    do: Callable[[Work], Any], environ: dict[str, str], tmp_path: Path
) -> None:
    """The source keeps records for as long as the cluster has it, which is longer than this."""
    environ = {**environ, "HEARTBEAT_REPARTITION_RETENTION_MS": "1000"}
    assert program("init", environ, tmp_path)[0] == 0
    topics = do(described)
    source = topics[environ["HEARTBEAT_TOPIC"]]
    repartition = topics[f"{environ['HEARTBEAT_APP_ID']}-heartbeats-repartition"]
    assert source.retention_ms != 1000
    assert repartition.retention_ms == source.retention_ms


def test_the_configuration_is_kafkas_after_init(
    do: Callable[[Work], Any], environ: dict[str, str], tmp_path: Path
) -> None:
    assert program("init", environ, tmp_path)[0] == 0
    settings = Settings.load(environ)
    topics = do(described)
    for spec in all_topics(settings, topics):
        config = topics[spec.name].config
        assert {name: config.get(name) for name in spec.config} == dict(spec.config)


def test_describing_a_missing_topic_does_not_create_it(do: Callable[[Work], Any]) -> None:
    assert do(described) == {}
    assert do(described) == {}


@pytest.mark.parametrize(("keyed", "code"), [("true", 1), ("false", 0)])
def test_check_after_the_source_has_grown(
    do: Callable[[Work], Any], environ: dict[str, str], tmp_path: Path, keyed: str, code: int
) -> None:
    environ = {**environ, "HEARTBEAT_SOURCE_KEYED": keyed, "HEARTBEAT_PARTITIONS": "2"}
    assert program("init", environ, tmp_path)[0] == 0

    async def grow(admin: AIOKafkaAdminClient, settings: Settings) -> None:
        await admin.create_partitions({settings.topic: NewPartitions(total_count=3)})

    do(grow)
    found, out, _ = program("check", environ, tmp_path)
    assert found == code
    assert ("has 2 partitions and" in out) is (code == 1)
