"""The launcher of Apache Kafka: what it starts is a cluster, and it can be hurt and mended."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError

from heartbeat_stream.local.apache_kafka import ApacheKafka, MissingTool, jars
from heartbeat_stream.local.process import children_of
from tests.support import kafka_admin
from tests.support.wait import process_runs, wait_until

GONE_SECONDS = 15.0
STARTS_ONE_AND_WAITS = """
import sys
from heartbeat_stream.local.apache_kafka import ApacheKafka
with ApacheKafka() as kafka:
    print(kafka.nodes[0].directory.parent, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def kafka() -> Iterator[ApacheKafka]:
    with ApacheKafka(extra_config={"message.max.bytes": "2000000"}) as cluster:
        yield cluster


@asynccontextmanager
async def producer(bootstrap_servers: str) -> AsyncIterator[AIOKafkaProducer]:
    client = AIOKafkaProducer(bootstrap_servers=bootstrap_servers, acks="all")
    await client.start()
    try:
        yield client
    finally:
        await client.stop()


async def produce(bootstrap_servers: str, topic: str, *values: bytes) -> None:
    async with producer(bootstrap_servers) as client:
        for value in values:
            await client.send_and_wait(topic, value, partition=0)


async def consume(bootstrap_servers: str, topic: str, count: int) -> list[bytes]:
    place = TopicPartition(topic, 0)
    async with kafka_admin.reader(bootstrap_servers) as consumer:
        consumer.assign([place])
        await consumer.seek_to_beginning(place)
        async with asyncio.timeout(20):
            return [bytes((await consumer.getone()).value) for _ in range(count)]


@pytest.mark.kafka
async def test_records_survive_a_restart_and_a_kill(kafka: ApacheKafka) -> None:
    bootstrap = kafka.bootstrap_servers
    await kafka_admin.create_topics(bootstrap, {"survives": 1})
    await produce(bootstrap, "survives", b"first")
    kafka.restart()
    assert kafka.bootstrap_servers == bootstrap
    await produce(bootstrap, "survives", b"second")
    pid = kafka.pid()
    kafka.kill()
    assert not process_runs(pid)
    kafka.start_node()
    await produce(bootstrap, "survives", b"third")
    assert await consume(bootstrap, "survives", 3) == [b"first", b"second", b"third"]


@pytest.mark.kafka
async def test_a_frozen_node_answers_after_it_has_thawed(kafka: ApacheKafka) -> None:
    await kafka_admin.create_topics(kafka.bootstrap_servers, {"frozen": 1})
    async with producer(kafka.bootstrap_servers) as client:
        await client.send_and_wait("frozen", b"before", partition=0)
        kafka.freeze()
        try:
            acknowledged = await client.send("frozen", b"during", partition=0)
            done, _ = await asyncio.wait([acknowledged], timeout=0.5)
            assert not done
        finally:
            kafka.thaw()
        record = await asyncio.wait_for(acknowledged, 20)
        assert record.offset == 1


@pytest.mark.kafka
async def test_topics_their_configuration_and_their_partitions(kafka: ApacheKafka) -> None:
    bootstrap = kafka.bootstrap_servers
    config = {"cleanup.policy": "compact", "retention.ms": "5000"}
    await kafka_admin.create_topics(bootstrap, {"configured": 2}, config=config)
    with pytest.raises(TopicAlreadyExistsError):
        await kafka_admin.create_topics(bootstrap, {"configured": 2})
    found = await kafka_admin.topic_config(bootstrap, "configured")
    assert config.items() <= found.items()
    assert found["max.message.bytes"] == "2000000"  # from extra_config
    await kafka_admin.alter_topic_config(bootstrap, "configured", {"retention.ms": "7000"})
    found = await kafka_admin.topic_config(bootstrap, "configured")
    assert (found["retention.ms"], found["cleanup.policy"]) == ("7000", "delete")
    await kafka_admin.create_partitions(bootstrap, "configured", 5)
    assert await kafka_admin.partition_count(bootstrap, "configured") == 5
    await kafka_admin.delete_topics(bootstrap, "configured")
    assert "configured" not in await kafka_admin.list_topics(bootstrap)
    with pytest.raises(UnknownTopicOrPartitionError):
        await kafka_admin.partition_count(bootstrap, "configured")


@pytest.mark.kafka
async def test_offsets_of_a_topic_and_of_a_group(kafka: ApacheKafka) -> None:
    bootstrap = kafka.bootstrap_servers
    await kafka_admin.create_topics(bootstrap, {"offsets": 2})
    assert await kafka_admin.committed_offset(bootstrap, "readers", "offsets", 0) is None
    await produce(bootstrap, "offsets", b"a", b"b", b"c")
    assert await kafka_admin.end_offsets(bootstrap, "offsets") == {0: 3, 1: 0}
    consumer = AIOKafkaConsumer(
        "offsets", bootstrap_servers=bootstrap, group_id="readers", enable_auto_commit=False
    )
    await consumer.start()
    try:
        await consumer.commit({TopicPartition("offsets", 0): 2})
    finally:
        await consumer.stop()
    assert await kafka_admin.committed_offset(bootstrap, "readers", "offsets", 0) == 2
    assert await kafka_admin.committed_offset(bootstrap, "readers", "offsets", 1) is None
    assert await kafka_admin.delete_records(bootstrap, "offsets", 0, 2) == 2
    assert await kafka_admin.beginning_offsets(bootstrap, "offsets") == {0: 2, 1: 0}


@pytest.mark.kafka
@pytest.mark.slow
async def test_three_nodes_go_on_without_one_of_them() -> None:
    with ApacheKafka(nodes=3) as cluster:
        bootstrap = cluster.bootstrap_servers
        await kafka_admin.create_topics(bootstrap, {"replicated": 1}, replication_factor=3)
        config = await kafka_admin.topic_config(bootstrap, "replicated")
        assert config["min.insync.replicas"] == "2"
        await produce(bootstrap, "replicated", b"with three")
        cluster.kill(0)
        await produce(bootstrap, "replicated", b"with two")
        cluster.start_node(0)
        assert await consume(bootstrap, "replicated", 2) == [b"with three", b"with two"]


@pytest.mark.kafka
def test_a_cluster_ends_when_its_owner_is_killed() -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", STARTS_ONE_AND_WAITS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    try:
        assert owner.stdout is not None
        directory = Path(owner.stdout.readline().strip())
        assert directory.is_dir()
        supervisors = children_of(owner.pid)
        pids = [*supervisors, *(node for pid in supervisors for node in children_of(pid))]
        assert len(pids) == 2
    finally:
        owner.kill()
        owner.communicate()
    wait_until(lambda: not any(process_runs(pid) for pid in pids), GONE_SECONDS)
    wait_until(lambda: not directory.exists(), GONE_SECONDS)


def test_a_missing_java_and_a_missing_maven_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(MissingTool, match="needs Java 17 or newer, none is on the PATH"):
        jars.java()
    with pytest.raises(MissingTool, match="no mvn on the PATH"):
        jars.kafka_jars()


def test_an_old_java_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    old.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(MissingTool, match="needs Java 17 or newer, the one in JAVA_HOME is 11"):
        jars.java()
