"""What `check` says about topics, by what the cluster has."""

from __future__ import annotations

from collections.abc import Mapping

from heartbeat_stream.checks.finding import Finding, Level, would_start
from heartbeat_stream.checks.topics import check_topics
from heartbeat_stream.settings import Settings
from heartbeat_stream.streaming.topics import TopicState, all_topics

KEYED = Settings(app_id="app", source_keyed=True, partitions=4, replication_factor=3)
UNKEYED = Settings(app_id="app", source_keyed=False, partitions=4, replication_factor=3)


def healthy(settings: Settings) -> dict[str, TopicState]:
    """The cluster after `init`."""
    return {
        spec.name: TopicState(
            spec.name,
            spec.partitions,
            spec.replication_factor,
            {"min.insync.replicas": "2", "retention.ms": "604800000", **spec.config},
        )
        for spec in all_topics(settings, {})
    }


def changed(topic: TopicState, **values: object) -> TopicState:
    config = {**topic.config, **{k.replace("_", "."): str(v) for k, v in values.items()}}
    return TopicState(topic.name, topic.partitions, topic.replication_factor, config)


def wrong(
    settings: Settings, existing: Mapping[str, TopicState], brokers: int = 3
) -> list[Finding]:
    findings = list(check_topics(settings, brokers, existing))
    return [finding for finding in findings if finding.level is not Level.OK]


def test_after_init_nothing_is_wrong() -> None:
    for settings in (KEYED, UNKEYED):
        assert wrong(settings, healthy(settings)) == []


def test_a_line_is_one_line_and_begins_with_its_level() -> None:
    for finding in check_topics(KEYED, 3, {}):
        assert "\n" not in str(finding)
        assert str(finding).split()[0] in {"ok", "warn", "FAIL"}


def test_without_source_or_dead_letters_a_worker_does_not_start() -> None:
    for name in ("heartbeat", "heartbeat.dead-letter"):
        existing = healthy(KEYED)
        del existing[name]
        [finding] = wrong(KEYED, existing)
        assert finding.level is Level.FAIL
        assert f"topic {name} " in finding.text
        assert "heartbeat-stream init" in finding.text


def test_internal_topics_that_are_missing_are_created_by_the_worker() -> None:
    existing = {
        name: topic for name, topic in healthy(UNKEYED).items() if not name.startswith("app-")
    }
    findings = list(check_topics(UNKEYED, 3, existing))
    assert would_start(findings)
    assert sum("not there yet" in finding.text for finding in findings) == 3


def test_unless_the_cluster_is_too_small_for_them() -> None:
    existing = {
        name: topic for name, topic in healthy(UNKEYED).items() if not name.startswith("app-")
    }
    findings = wrong(UNKEYED, existing, brokers=2)
    assert {finding.level for finding in findings} == {Level.FAIL}
    assert all("HEARTBEAT_REPLICATION_FACTOR is 3" in finding.text for finding in findings)


def test_a_keyed_source_that_has_grown_parts_rooms_from_their_state() -> None:
    existing = healthy(KEYED)
    existing["heartbeat"] = TopicState("heartbeat", 6, 3, {"min.insync.replicas": "2"})
    findings = wrong(KEYED, existing)
    assert [finding.level for finding in findings] == [Level.FAIL, Level.FAIL]
    assert "has 4 partitions and heartbeat has 6" in findings[0].text
    assert "HEARTBEAT_SOURCE_KEYED=false" in findings[0].text


def test_an_unkeyed_source_may_grow() -> None:
    existing = healthy(UNKEYED)
    existing["heartbeat"] = TopicState("heartbeat", 6, 3, {"min.insync.replicas": "2"})
    assert wrong(UNKEYED, existing) == []


def test_a_repartition_topic_that_would_not_fit_the_state() -> None:
    """As where the source was keyed until now."""
    existing = healthy(UNKEYED)
    del existing["app-heartbeats-repartition"]
    for name in ("app-latest-changelog", "app-last_written_at-changelog"):
        existing[name] = TopicState(name, 5, 3, existing[name].config)
    findings = wrong(UNKEYED, existing)
    assert [one.level for one in findings] == [Level.FAIL, Level.FAIL]
    assert "would be created with 4" in findings[0].text


def test_a_repartition_topic_that_has_grown() -> None:
    existing = healthy(UNKEYED)
    name = "app-heartbeats-repartition"
    existing[name] = TopicState(name, 5, 3, existing[name].config)
    findings = wrong(UNKEYED, existing)
    assert [finding.level for finding in findings] == [Level.FAIL, Level.FAIL]
    assert "HEARTBEAT_APP_ID" in findings[0].text


def test_one_replica_on_many_brokers_is_a_warning() -> None:
    existing = healthy(KEYED)
    existing["heartbeat"] = TopicState("heartbeat", 4, 1, {"min.insync.replicas": "1"})
    [finding] = wrong(KEYED, existing)
    assert finding.level is Level.WARN
    assert "1 replica on 3 brokers" in finding.text


def test_fewer_replicas_than_the_settings_want_is_a_warning() -> None:
    existing = healthy(KEYED)
    existing["heartbeat"] = TopicState("heartbeat", 4, 2, {"min.insync.replicas": "2"})
    [finding] = wrong(KEYED, existing)
    assert finding.level is Level.WARN
    assert "2 replicas, and HEARTBEAT_REPLICATION_FACTOR is 3" in finding.text


def test_one_replica_in_the_settings_is_a_warning_before_anything_is_created() -> None:
    settings = Settings(app_id="app", replication_factor=1)
    findings = wrong(settings, {"heartbeat": TopicState("heartbeat", 4, 3, {})})
    warned = [finding.text for finding in findings if finding.level is Level.WARN]
    assert len(warned) == 3
    assert all("HEARTBEAT_REPLICATION_FACTOR=3" in text for text in warned)


def test_one_in_sync_replica_is_a_warning() -> None:
    existing = healthy(KEYED)
    existing["heartbeat"] = changed(existing["heartbeat"], min_insync_replicas=1)
    [finding] = wrong(KEYED, existing)
    assert finding.level is Level.WARN
    assert "min.insync.replicas=2" in finding.text


def test_one_broker_alone_is_not_warned_about() -> None:
    settings = Settings(app_id="app", replication_factor=1)
    existing = {
        spec.name: TopicState(spec.name, spec.partitions, 1, {"min.insync.replicas": "1"})
        for spec in all_topics(settings, {})
    }
    assert wrong(settings, existing, brokers=1) == []


def test_a_repartition_topic_that_forgets_before_the_source() -> None:
    for source, kept, warned in (
        (1000, 999, True),
        (1000, 1000, False),
        (-1, 1000, True),
        (1000, -1, False),
        (-1, -1, False),
    ):
        existing = healthy(UNKEYED)
        name = "app-heartbeats-repartition"
        existing["heartbeat"] = changed(existing["heartbeat"], retention_ms=source)
        existing[name] = changed(existing[name], retention_ms=kept)
        assert bool(wrong(UNKEYED, existing)) is warned, (source, kept)


def test_a_changelog_that_is_deleted_from() -> None:
    existing = healthy(KEYED)
    name = "app-latest-changelog"
    existing[name] = changed(existing[name], cleanup_policy="compact,delete")
    [finding] = wrong(KEYED, existing)
    assert finding.level is Level.FAIL
    assert "cleanup.policy=compact" in finding.text


def test_a_broker_that_tells_no_configuration_is_believed() -> None:
    existing = {
        name: TopicState(name, topic.partitions, 3) for name, topic in healthy(UNKEYED).items()
    }
    assert wrong(UNKEYED, existing) == []
