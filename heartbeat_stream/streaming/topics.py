"""Every topic of the job: its name, its partitions and its configuration. Data alone, no I/O.

Source --(ingest)--> repartition --(state)--> changelogs. With a keyed source the repartition topic
is left out. A changelog has exactly as many partitions as the topic whose records its table keeps
the state of: partition n of the one is the state of partition n of the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from heartbeat_stream.settings import Settings

__all__ = [
    "FOREVER",
    "TABLES",
    "TopicSpec",
    "TopicState",
    "all_topics",
    "changelog_topic_name",
    "dead_letter_topic",
    "internal_topics",
    "repartition_topic_name",
    "source_topic",
    "state_topic_name",
]

# The tables; each has a changelog.
TABLES = ("latest", "last_written_at")

FOREVER = -1


@dataclass(frozen=True)
class TopicSpec:
    """A topic as it is to be created."""

    name: str
    partitions: int
    replication_factor: int
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TopicState:
    """A topic as the cluster has it.

    `config` holds what the broker said: nothing where it may not be asked, and little where it
    leaves out the values that nobody set. `replication_factor` is that of the worst partition.
    """

    name: str
    partitions: int
    replication_factor: int
    config: Mapping[str, str] = field(default_factory=dict)

    @property
    def retention_ms(self) -> int | None:
        """How long records are kept; None where the broker does not say."""
        text = self.config.get("retention.ms")
        return int(text) if text is not None else None

    @property
    def min_insync_replicas(self) -> int | None:
        """How many replicas must have a record before it is acknowledged; None where unknown."""
        text = self.config.get("min.insync.replicas")
        return int(text) if text is not None else None


def repartition_topic_name(settings: Settings) -> str:
    """Where heartbeats of an unkeyed source go by their room."""
    return f"{settings.app_id}-heartbeats-repartition"


def changelog_topic_name(settings: Settings, table: str) -> str:
    """The name that Faust gives a table's changelog."""
    return f"{settings.app_id}-{table}-changelog"


def state_topic_name(settings: Settings) -> str:
    """The topic whose partitions the tables are partitioned like."""
    return settings.topic if settings.source_keyed else repartition_topic_name(settings)


def source_topic(settings: Settings) -> TopicSpec:
    """The source, where it is ours to create. Its configuration is its owner's to choose."""
    return TopicSpec(settings.topic, settings.partitions, settings.replication_factor)


def dead_letter_topic(settings: Settings) -> TopicSpec:
    """Where bad input goes."""
    return TopicSpec(
        settings.dead_letter_topic,
        settings.partitions,
        settings.replication_factor,
        {
            "cleanup.policy": "delete",
            "retention.ms": str(settings.dead_letter_retention_ms),
            "retention.bytes": str(FOREVER),
            **_durable(settings),
        },
    )


def internal_topics(
    settings: Settings,
    source_partitions: int,
    *,
    source_retention_ms: int | None = None,
    repartition_partitions: int | None = None,
) -> list[TopicSpec]:
    """The topics that belong to this app id alone.

    Of the source: its real partition count, and how long it keeps records (None where unknown).
    Of the repartition topic: its real partition count where it exists already.
    """
    specs = []
    state_partitions = source_partitions
    if not settings.source_keyed:
        state_partitions = repartition_partitions or settings.partitions
        specs.append(_repartition_topic(settings, state_partitions, source_retention_ms))
    specs += [_changelog_topic(settings, table, state_partitions) for table in TABLES]
    return specs


def all_topics(settings: Settings, existing: Mapping[str, TopicState]) -> list[TopicSpec]:
    """Every topic of the job as it should be, beside those that the cluster has already."""
    source = existing.get(settings.topic)
    repartition = existing.get(repartition_topic_name(settings))
    return [
        source_topic(settings),
        dead_letter_topic(settings),
        *internal_topics(
            settings,
            source.partitions if source else settings.partitions,
            source_retention_ms=source.retention_ms if source else None,
            repartition_partitions=repartition.partitions if repartition else None,
        ),
    ]


def _repartition_topic(
    settings: Settings, partitions: int, source_retention_ms: int | None
) -> TopicSpec:
    return TopicSpec(
        repartition_topic_name(settings),
        partitions,
        settings.replication_factor,
        {
            "cleanup.policy": "delete",
            "retention.ms": str(
                _longer(settings.repartition_retention_ms, source_retention_ms or 0)
            ),
            # A cluster's limit by size would cut the time short.
            "retention.bytes": str(FOREVER),
            # Time is counted from the forwarding on. By a record's own time, a backlog as old as
            # the retention would be deleted as soon as it has been forwarded.
            "message.timestamp.type": "LogAppendTime",
            **_durable(settings),
        },
    )


def _changelog_topic(settings: Settings, table: str, partitions: int) -> TopicSpec:
    return TopicSpec(
        changelog_topic_name(settings, table),
        partitions,
        settings.replication_factor,
        {
            "cleanup.policy": "compact",
            "min.compaction.lag.ms": str(settings.changelog_compaction_lag_ms),
            **_durable(settings),
        },
    )


def _durable(settings: Settings) -> dict[str, str]:
    """What is acknowledged survives the loss of one broker, and writing goes on without it."""
    if settings.replication_factor < 3:
        return {}
    return {"min.insync.replicas": str(settings.replication_factor - 1)}


def _longer(one: int, other: int) -> int:
    return FOREVER if FOREVER in (one, other) else max(one, other)
