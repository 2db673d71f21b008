"""The topics of the job, as data: which there are, and what makes them durable."""

from __future__ import annotations

import pytest

from heartbeat_stream.settings import Settings
from heartbeat_stream.streaming.topics import (
    FOREVER,
    TopicState,
    all_topics,
    dead_letter_topic,
    internal_topics,
)

KEYED = Settings(app_id="app", source_keyed=True, partitions=8)
UNKEYED = Settings(app_id="app", source_keyed=False, partitions=8)

DAY_MS = 86_400_000


def test_an_unkeyed_source_has_a_repartition_topic() -> None:
    topics = internal_topics(UNKEYED, 5)
    assert [(topic.name, topic.partitions) for topic in topics] == [
        ("app-heartbeats-repartition", 8),
        ("app-latest-changelog", 8),
        ("app-last_written_at-changelog", 8),
    ]


def test_a_keyed_source_is_what_the_changelogs_are_partitioned_like() -> None:
    topics = internal_topics(KEYED, 5)
    assert [(topic.name, topic.partitions) for topic in topics] == [
        ("app-latest-changelog", 5),
        ("app-last_written_at-changelog", 5),
    ]


def test_changelogs_follow_a_repartition_topic_that_exists() -> None:
    topics = internal_topics(UNKEYED, 5, repartition_partitions=3)
    assert {topic.partitions for topic in topics} == {3}


@pytest.mark.parametrize(
    ("setting", "source", "kept"),
    [
        (7 * DAY_MS, None, 7 * DAY_MS),
        (7 * DAY_MS, DAY_MS, 7 * DAY_MS),
        (7 * DAY_MS, 30 * DAY_MS, 30 * DAY_MS),
        (7 * DAY_MS, FOREVER, FOREVER),
        (FOREVER, 30 * DAY_MS, FOREVER),
        (0, 0, 0),
    ],
)
def test_the_repartition_topic_keeps_records_as_long_as_the_source(
    setting: int, source: int | None, kept: int
) -> None:
    settings = Settings(repartition_retention_ms=setting)
    config = internal_topics(settings, 5, source_retention_ms=source)[0].config
    assert config["retention.ms"] == str(kept)
    assert config["retention.bytes"] == "-1"
    assert config["cleanup.policy"] == "delete"
    assert config["message.timestamp.type"] == "LogAppendTime"


def test_changelogs_are_compacted_late() -> None:
    for topic in internal_topics(Settings(source_keyed=True, changelog_compaction_lag_ms=77), 5):
        assert topic.config["cleanup.policy"] == "compact"
        assert topic.config["min.compaction.lag.ms"] == "77"


def test_dead_letters_are_kept() -> None:
    config = dead_letter_topic(Settings(dead_letter_retention_ms=FOREVER)).config
    assert (config["retention.ms"], config["retention.bytes"]) == ("-1", "-1")


@pytest.mark.parametrize(("replicas", "insync"), [(1, None), (2, None), (3, "2"), (5, "4")])
def test_what_is_acknowledged_survives_the_loss_of_a_broker(
    replicas: int, insync: str | None
) -> None:
    settings = Settings(replication_factor=replicas)
    topics = [dead_letter_topic(settings), *internal_topics(settings, 5)]
    assert {topic.replication_factor for topic in topics} == {replicas}
    assert {topic.config.get("min.insync.replicas") for topic in topics} == {insync}


def test_all_topics_follow_those_that_exist() -> None:
    source = TopicState("heartbeat", 5, 1, {"retention.ms": str(30 * DAY_MS)})
    topics = {topic.name: topic for topic in all_topics(UNKEYED, {"heartbeat": source})}
    assert topics["app-heartbeats-repartition"].config["retention.ms"] == str(30 * DAY_MS)
    topics = {topic.name: topic for topic in all_topics(KEYED, {"heartbeat": source})}
    assert topics["app-latest-changelog"].partitions == 5
    assert set(topics) == {
        "heartbeat",
        "heartbeat.dead-letter",
        "app-latest-changelog",
        "app-last_written_at-changelog",
    }
