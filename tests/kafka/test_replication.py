"""Three brokers: how often records are kept, and what the loss of one of them costs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from heartbeat_stream.local.fleet import Fleet
from heartbeat_stream.local.stack import EmbeddedStack
from tests.support.apache_kafka import ApacheKafka
from tests.support.world import Cluster, World, load, running_workers

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture
def three_brokers() -> Iterator[ApacheKafka]:
    with ApacheKafka(nodes=3) as kafka:
        yield kafka


async def test_topics_are_replicated_as_set_and_survive_a_broker(
    three_brokers: ApacheKafka, stack: EmbeddedStack, tmp_path: Path
) -> None:
    with running_workers(tmp_path) as workers:
        cluster = Cluster("kafka", three_brokers.bootstrap_servers, 6_000)
        world = World(cluster, stack.postgres.url, tmp_path, workers)
        await world.prepare(replication_factor=3)
        worker = await world.start_worker().ready()
        topics = await world.topics()
        assert len(topics) == 5
        for topic in topics.values():
            assert topic.replication_factor == 3, topic
        internal = [world.repartition_topic, world.dead_letter_topic]
        internal += [world.changelog(table) for table in ("latest", "last_written_at")]
        for name in internal:
            assert topics[name].min_insync_replicas == 2, name
        fleet = Fleet(hotels=2, rooms_per_hotel=100)
        async with load(world, fleet, rate=500) as running:
            await worker.until_metric("heartbeat_rows_written_total", 200)
            three_brokers.kill(1)
            figures = await worker.metrics()
            await worker.until_metric(
                "heartbeat_checkpoints_total", figures["heartbeat_checkpoints_total"] + 3, 60
            )
            await worker.until_metric(
                "heartbeat_rows_written_total", figures["heartbeat_rows_written_total"] + 300, 60
            )
        await running.oracle.matches(world.table)
        await world.table.keeps_cooldown(3_000, crashes=1)
        await worker.stopped()
