"""Are the topics as the job needs them? Judges what was read from the cluster; no I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set

from heartbeat_stream.checks.finding import Finding, fail, ok, warn
from heartbeat_stream.settings import Settings
from heartbeat_stream.streaming.topics import (
    FOREVER,
    JobTopics,
    TopicState,
    all_topics,
    heartbeat_topics,
)

_INIT = "run `heartbeat-stream init`"
_ALTER = "kafka-configs.sh --alter --entity-type topics --entity-name {topic} --add-config {config}"


def check_topics(
    settings: Settings,
    brokers: int,
    existing: Mapping[str, TopicState],
    hidden: Set[str] = frozenset(),
    jobs: Sequence[JobTopics] | None = None,
) -> Iterator[Finding]:
    """Everything about the topics, given those that exist and the number of brokers.

    `hidden` are those of which nothing is known, and nothing is said, since we may not see them.
    """
    jobs = jobs if jobs is not None else [heartbeat_topics(settings)]
    named = {name: variable for job in jobs for name, variable in job.named().items()}
    named[settings.dead_letter_topic] = "HEARTBEAT_DEAD_LETTER_TOPIC"
    for spec in all_topics(settings, existing, jobs):
        topic = existing.get(spec.name)
        if topic is not None:
            yield ok(_description(topic))
            yield from _durability(topic, brokers)
            yield from _fewer_replicas(topic, spec.replication_factor, brokers)
        elif spec.name in hidden:
            continue
        elif spec.name in named:
            yield fail(f"topic {spec.name} ({named[spec.name]}) does not exist: {_INIT}")
        else:
            yield from _missing(settings, spec.name, spec.replication_factor, brokers)
    for job in jobs:
        yield from _partition_counts(job, existing)
        yield from _repartition_retention(job, existing)
        yield from _changelog_policy(job, existing)


def _missing(settings: Settings, name: str, replicas: int, brokers: int) -> Iterator[Finding]:
    if replicas > brokers:
        yield fail(
            f"topic {name} is missing and cannot be created: HEARTBEAT_REPLICATION_FACTOR is "
            f"{replicas} and the cluster has {_count(brokers, 'broker')}"
        )
    else:
        yield ok(f"topic {name} is not there yet: `heartbeat-stream init` or a worker creates it")
        if replicas == 1 < brokers:
            yield warn(
                f"topic {name} will have 1 replica on {brokers} brokers and be lost with one of "
                "them: set HEARTBEAT_REPLICATION_FACTOR=3"
            )


def _durability(topic: TopicState, brokers: int) -> Iterator[Finding]:
    if brokers == 1:
        return
    if topic.replication_factor == 1:
        yield warn(
            f"topic {topic.name} has 1 replica on {brokers} brokers and is lost with one of them: "
            "raise it with kafka-reassign-partitions.sh"
        )
    elif topic.min_insync_replicas == 1:
        alter = _ALTER.format(topic=topic.name, config="min.insync.replicas=2")
        yield warn(
            f"topic {topic.name} has min.insync.replicas=1, so a record that was acknowledged may "
            f"be on one broker alone: {alter}"
        )


def _fewer_replicas(topic: TopicState, wanted: int, brokers: int) -> Iterator[Finding]:
    alone = topic.replication_factor == 1 < brokers  # that is said already
    if topic.replication_factor < wanted and not alone:
        yield warn(
            f"topic {topic.name} has {_count(topic.replication_factor, 'replica')}, and "
            f"HEARTBEAT_REPLICATION_FACTOR is {wanted}: raise it with kafka-reassign-partitions.sh"
        )


def _partition_counts(job: JobTopics, existing: Mapping[str, TopicState]) -> Iterator[Finding]:
    # As it is, or as it would be created.
    planned = {spec.name: spec.partitions for spec in job.all(existing)}
    partitions = planned[job.state] if job.state not in existing else existing[job.state].partitions
    for name in job.changelogs:
        changelog = existing.get(name)
        if changelog is None or changelog.partitions == partitions:
            continue
        has = "has" if job.state in existing else "would be created with"
        yield fail(
            f"topic {changelog.name} has {_count(changelog.partitions, 'partition')} and "
            f"{job.state} {has} {partitions}, so keys and their state would part: "
            + (
                f"start with a new HEARTBEAT_APP_ID, or set {job.keyed_variable}=false"
                if job.keyed
                else "start with a new HEARTBEAT_APP_ID"
            )
        )


def _repartition_retention(job: JobTopics, existing: Mapping[str, TopicState]) -> Iterator[Finding]:
    source, repartition = existing.get(job.source.name), existing.get(job.repartition)
    if job.keyed or source is None or repartition is None:
        return
    kept, wanted = repartition.retention_ms, source.retention_ms
    if kept is None or wanted is None or kept == FOREVER:
        return
    if wanted == FOREVER or kept < wanted:
        alter = _ALTER.format(topic=repartition.name, config=f"retention.ms={wanted}")
        yield warn(
            f"topic {repartition.name} keeps records for {kept} ms and {source.name} for "
            f"{'ever' if wanted == FOREVER else f'{wanted} ms'}: a worker that is down for longer "
            f"loses what it had forwarded: {alter}"
        )


def _changelog_policy(job: JobTopics, existing: Mapping[str, TopicState]) -> Iterator[Finding]:
    for name in job.changelogs:
        changelog = existing.get(name)
        policy = changelog.config.get("cleanup.policy") if changelog else None
        if changelog and policy is not None and "delete" in policy:
            alter = _ALTER.format(topic=changelog.name, config="cleanup.policy=compact")
            yield fail(
                f"topic {changelog.name} has cleanup.policy={policy}, so state is deleted: {alter}"
            )


def _description(topic: TopicState) -> str:
    partitions = _count(topic.partitions, "partition")
    return f"topic {topic.name}: {partitions}, {_count(topic.replication_factor, 'replica')}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
