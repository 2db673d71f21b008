"""What a login lacks, judged from what the broker says it may do."""

from __future__ import annotations

import pytest

from heartbeat_stream.settings import Settings
from heartbeat_stream.streaming.permissions import (
    Operation,
    Permissions,
    denied_to_init,
    denied_to_worker,
)
from heartbeat_stream.streaming.topics import all_topics

R, W, D, C = Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS
EVERYTHING = frozenset(Operation)


def names(settings: Settings) -> list[str]:
    return [spec.name for spec in all_topics(settings, {})]


def allowed(settings: Settings, **but: frozenset[Operation]) -> Permissions:
    """Everything, but for the topics whose names end so (underscores stand for other signs)."""
    topics = dict.fromkeys(names(settings), EVERYTHING)
    for end, operations in but.items():
        (name,) = [one for one in topics if one.endswith(end.replace("_", "-"))]
        topics[name] = operations
    return Permissions(topics, EVERYTHING)


def test_all_that_is_needed_is_there() -> None:
    settings = Settings()
    assert denied_to_worker(settings, allowed(settings)) == []
    least = {
        "heartbeat": {R, D},
        "heartbeat.dead-letter": {W, D},
        "heartbeat-stream-heartbeats-repartition": {R, W, D},
        "heartbeat-stream-latest-changelog": {R, W, D},
        "heartbeat-stream-last_written_at-changelog": {R, W, D},
    }
    topics = {name: frozenset(operations) for name, operations in least.items()}
    assert denied_to_worker(settings, Permissions(topics, frozenset({R, D}))) == []


@pytest.mark.parametrize(
    ("end", "operations", "lacks"),
    [
        ("repartition", {R, D}, ["Write"]),
        ("latest_changelog", {W, D}, ["Read"]),
        ("dead_letter", {R, D}, ["Write"]),
        ("repartition", set(), ["Read", "Write"]),
    ],
)
def test_each_operation_that_is_missing_is_a_line(
    end: str, operations: set[Operation], lacks: list[str]
) -> None:
    settings = Settings()
    lines = denied_to_worker(settings, allowed(settings, **{end: frozenset(operations)}))
    (name,) = [one for one in names(settings) if one.endswith(end.replace("_", "-"))]
    assert [line.split(":")[0] for line in lines] == [
        f"this login lacks {operation} on topic {name}" for operation in lacks
    ]


def test_a_keyed_source_needs_no_repartition_topic() -> None:
    settings = Settings(source_keyed=True)
    topics = {"heartbeat-stream-heartbeats-repartition": frozenset[Operation]()}
    assert denied_to_worker(settings, Permissions(topics)) == []


def test_the_group() -> None:
    lines = denied_to_worker(Settings(), Permissions({}, frozenset({D})))
    assert lines[0].startswith("this login lacks Read on group heartbeat-stream")


def test_what_the_broker_does_not_tell_is_not_missing() -> None:
    assert denied_to_worker(Settings(), Permissions({}, None)) == []
    assert denied_to_init(Permissions({}), ["heartbeat"]) == []


def test_init_must_see_topics_and_how_long_the_source_keeps_its_records() -> None:
    topics = {"heartbeat": frozenset({D}), "heartbeat.dead-letter": frozenset[Operation]()}
    lines = denied_to_init(Permissions(topics), ["heartbeat"])
    assert [line.split(":")[0] for line in lines] == [
        "this login lacks DescribeConfigs on topic heartbeat",
        "this login lacks Describe on topic heartbeat.dead-letter",
    ]
