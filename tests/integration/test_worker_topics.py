"""The topics that a worker makes for itself, and when it refuses those that are there."""

import pytest

from heartbeat_stream.streaming.topics import TopicSpec
from tests.support.brokers import on_embedded
from tests.support.world import World

MONTH_MS = 30 * 86_400_000
TABLES = ("latest", "last_written_at")


async def test_the_repartition_topic_keeps_records_as_long_as_the_source(world: World) -> None:
    await world.prepare(source_config={"retention.ms": str(MONTH_MS)})
    await world.start_worker().ready()
    repartition = (await world.topics())[world.repartition_topic]
    assert repartition.retention_ms == MONTH_MS
    assert repartition.config["cleanup.policy"] == "delete"


@pytest.mark.parametrize("keyed", [False, True], ids=["unkeyed", "keyed"])
async def test_changelogs_have_the_partitions_of_what_they_are_the_state_of(
    world: World, keyed: bool
) -> None:
    # The source is somebody else's, with a number of partitions of its own.
    world.set(source_keyed=keyed, partitions=2)
    await world.create_topics(TopicSpec(world.topic, 3, 1))
    await world.prepare()
    await world.start_worker().ready()
    topics = await world.topics()
    assert topics[world.topic].partitions == 3
    for table in TABLES:
        changelog = topics[world.changelog(table)]
        assert changelog.partitions == (3 if keyed else 2)
        assert changelog.config["cleanup.policy"] == "compact"
        assert changelog.config["min.compaction.lag.ms"] == "86400000"
    if keyed:
        assert world.repartition_topic not in topics
    else:
        assert topics[world.repartition_topic].partitions == 2


@on_embedded
async def test_a_changelog_with_other_partitions_is_refused(world: World) -> None:
    world.set(source_keyed=True)
    await world.create_topics(TopicSpec(world.changelog("latest"), 3, 1))
    await world.prepare()
    worker = world.start_worker()
    assert await worker.ended() == 1
    last = worker.log_text().splitlines()[-1]
    assert world.changelog("latest") in last
    assert "HEARTBEAT_APP_ID" in last
    assert "Traceback" not in worker.log_text()
