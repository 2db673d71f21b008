"""What a job is to the worker that runs it, and what the worker gives it.

A job NAME is the module ``jobs/NAME.py``, with two functions: ``topics(settings)`` says what it
reads, keeps and writes, and ``build(house, topics, partitions)`` makes it. ``docs/jobs.md`` shows
how to add one.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from faust.types import Message

from heartbeat_stream.settings import Settings
from heartbeat_stream.streaming.checkpoint import Checkpointer
from heartbeat_stream.streaming.dead_letters import DeadLetters
from heartbeat_stream.streaming.engine import StatefulJob
from heartbeat_stream.streaming.faust_app import TableMaker
from heartbeat_stream.streaming.lanes import Lanes
from heartbeat_stream.streaming.lease import Lease
from heartbeat_stream.streaming.producer import Outbox
from heartbeat_stream.streaming.topics import JobTopics
from heartbeat_stream.streaming.transactions import Transactions

__all__ = ["Handle", "House", "Job", "JobModule", "TopicGrown"]

#: Works on a batch of records of one partition: its value is a list of them.
Handle = Callable[[Message], Awaitable[None]]


class TopicGrown(Exception):
    """A topic has got more partitions than the tables have."""

    def __init__(self, topic: str, partitions: int) -> None:
        super().__init__(
            f"the topic {topic} has got more partitions than the {partitions} that the tables "
            "have, so keys have moved to partitions where their state is not: set another "
            "HEARTBEAT_APP_ID, whose tables are then rebuilt from the topic"
        )


class Job(StatefulJob, Protocol):
    """A job as the worker sees it. The engine sees less of it: which partitions it has."""

    counts: Counter[str]
    """What has happened, by name, for the metrics."""

    def agents(self) -> Mapping[str, Handle]:
        """Who works on the batches of which topic."""

    def tick(self) -> None:
        """Called twenty times a second: do what is due. Must not take longer than milliseconds."""

    def keep_house(self) -> None:
        """Called twice a second: forget what is old, a slice at a time."""

    def owns(self, partition: int) -> bool:
        """Whether the partition is ours and loaded."""

    def look_up(self, table: str, key: bytes) -> Any | None:
        """What a table knows of a key now, whatever is checkpointed of it; None for nothing."""

    def trouble(self) -> Mapping[str, str | None]:
        """What keeps the job from its work, by name, for /health/ready: None where nothing does."""

    async def finish(self, timeout_s: float) -> None:
        """Fetching has stopped: do what is due by now, within this time. Never raises."""

    async def stop(self) -> None:
        """Everything is durable, or was said not to be: close connections and files."""


@dataclass(frozen=True)
class House:
    """The parts of a worker that its jobs share."""

    settings: Settings
    table: TableMaker
    outbox: Outbox
    lanes: Lanes
    transactions: Transactions | None
    """Where outputs and what is remembered become visible together; None: they need not."""
    dead_letters: DeadLetters
    checkpointer: Checkpointer
    lease: Lease
    now_ms: Callable[[], int]
    output_partitions: Mapping[str, int]
    """How many partitions each output topic of the jobs has, by name."""


class JobModule(Protocol):
    """What a module of a job has."""

    @staticmethod
    def topics(settings: Settings) -> JobTopics:
        """What the job reads, keeps and writes. Raises SettingsError where its own settings, or
        the files that they name, are wrong."""

    @staticmethod
    def build(house: House, topics: JobTopics, partitions: int) -> Job:
        """The job of a worker. ``partitions``: how many its tables have, and what feeds them."""
