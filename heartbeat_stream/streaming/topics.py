"""Every topic of a job: its name, its partitions and its configuration. Data alone, no I/O.

Source --(ingest)--> repartition --(state)--> changelogs. With a keyed source the repartition topic
is left out. A changelog has exactly as many partitions as the topic whose records its table keeps
the state of: partition n of the one is the state of partition n of the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from heartbeat_stream.settings import Settings

__all__ = [
    "FOREVER",
    "TABLES",
    "JobTopics",
    "NamedTopic",
    "TopicSpec",
    "TopicState",
    "all_topics",
    "changelog_topic_name",
    "dead_letter_topic",
    "heartbeat_topics",
    "internal_topics",
    "repartition_topic_name",
    "source_topic",
    "state_topic_name",
]

# The tables of the heartbeats; each has a changelog.
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


@dataclass(frozen=True)
class NamedTopic:
    """A topic whose name is a setting, and that setting's variable."""

    name: str
    variable: str


@dataclass(frozen=True)
class JobTopics:
    """What one job reads, keeps and writes, by these settings.

    `keyed`: the source is placed by the job's own key already. `keyed_variable` is the setting that
    says so, empty where a job has none.
    """

    settings: Settings
    job: str
    source: NamedTopic
    tables: tuple[str, ...]
    outputs: tuple[NamedTopic, ...] = ()
    keyed: bool = False
    keyed_variable: str = ""
    soon: bool = False
    """Whether what comes in is to come out within milliseconds."""

    @property
    def repartition(self) -> str:
        """Where the records of an unkeyed source go by their key."""
        return f"{self.settings.app_id}-{self.job}-repartition"

    @property
    def state(self) -> str:
        """The topic whose partitions the tables are partitioned like."""
        return self.source.name if self.keyed else self.repartition

    @property
    def read(self) -> frozenset[str]:
        """The topics that the job reads, changelogs left out."""
        return frozenset({self.source.name, self.state})

    @property
    def changelogs(self) -> tuple[str, ...]:
        return tuple(changelog_topic_name(self.settings, table) for table in self.tables)

    def named(self) -> dict[str, str]:
        """The topics that `init` alone creates, by name, each with its variable."""
        return {topic.name: topic.variable for topic in (self.source, *self.outputs)}

    def source_spec(self) -> TopicSpec:
        """The source, where it is ours to create. Its configuration is its owner's to choose."""
        settings = self.settings
        return TopicSpec(self.source.name, settings.partitions, settings.replication_factor)

    def internal(
        self,
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
        if not self.keyed:
            state_partitions = repartition_partitions or self.settings.partitions
            specs.append(self._repartition_spec(state_partitions, source_retention_ms))
        specs += [
            _changelog_topic(self.settings, changelog, state_partitions)
            for changelog in self.changelogs
        ]
        return specs

    def internal_beside(self, existing: Mapping[str, TopicState]) -> list[TopicSpec]:
        """The same beside those topics that the cluster has already."""
        source, repartition = existing.get(self.source.name), existing.get(self.repartition)
        return self.internal(
            source.partitions if source else self.settings.partitions,
            source_retention_ms=source.retention_ms if source else None,
            repartition_partitions=repartition.partitions if repartition else None,
        )

    def all(self, existing: Mapping[str, TopicState]) -> list[TopicSpec]:
        """Every topic of this job but the dead letters, which all jobs share."""
        settings = self.settings
        outputs = [
            TopicSpec(
                topic.name, settings.partitions, settings.replication_factor, _durable(settings)
            )
            for topic in self.outputs
        ]
        return [self.source_spec(), *outputs, *self.internal_beside(existing)]

    def _repartition_spec(self, partitions: int, source_retention_ms: int | None) -> TopicSpec:
        settings = self.settings
        return TopicSpec(
            self.repartition,
            partitions,
            settings.replication_factor,
            {
                "cleanup.policy": "delete",
                "retention.ms": str(
                    _longer(settings.repartition_retention_ms, source_retention_ms or 0)
                ),
                # A cluster's limit by size would cut the time short.
                "retention.bytes": str(FOREVER),
                # Time is counted from the forwarding on. By a record's own time, a backlog as old
                # as the retention would be deleted as soon as it has been forwarded.
                "message.timestamp.type": "LogAppendTime",
                **_durable(settings),
            },
        )


def heartbeat_topics(settings: Settings) -> JobTopics:
    """Those of the heartbeats."""
    return JobTopics(
        settings,
        "heartbeats",
        NamedTopic(settings.topic, "HEARTBEAT_TOPIC"),
        TABLES,
        keyed=settings.source_keyed,
        keyed_variable="HEARTBEAT_SOURCE_KEYED",
    )


def repartition_topic_name(settings: Settings) -> str:
    """Where heartbeats of an unkeyed source go by their room."""
    return heartbeat_topics(settings).repartition


def changelog_topic_name(settings: Settings, table: str) -> str:
    """The name that Faust gives a table's changelog."""
    return f"{settings.app_id}-{table}-changelog"


def state_topic_name(settings: Settings) -> str:
    """The topic whose partitions the heartbeats' tables are partitioned like."""
    return heartbeat_topics(settings).state


def source_topic(settings: Settings) -> TopicSpec:
    """The heartbeats' source, where it is ours to create."""
    return heartbeat_topics(settings).source_spec()


def dead_letter_topic(settings: Settings) -> TopicSpec:
    """Where bad input goes, of all jobs."""
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
    """The heartbeats' topics that belong to this app id alone: see :meth:`JobTopics.internal`."""
    return heartbeat_topics(settings).internal(
        source_partitions,
        source_retention_ms=source_retention_ms,
        repartition_partitions=repartition_partitions,
    )


def all_topics(
    settings: Settings,
    existing: Mapping[str, TopicState],
    jobs: Sequence[JobTopics] | None = None,
) -> list[TopicSpec]:
    """Every topic as it should be, beside those that the cluster has already.

    Of these jobs; of the heartbeats alone where none are given.
    """
    first, *others = jobs if jobs is not None else (heartbeat_topics(settings),)
    source, *rest = first.all(existing)
    specs = [source, dead_letter_topic(settings), *rest]
    return specs + [spec for job in others for spec in job.all(existing)]


def _changelog_topic(settings: Settings, name: str, partitions: int) -> TopicSpec:
    return TopicSpec(
        name,
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
