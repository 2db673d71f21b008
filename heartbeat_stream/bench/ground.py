"""The servers that a benchmark runs on: a broker, a PostgreSQL, and directories beside them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import asyncpg
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from heartbeat_stream.bench.worker_process import BenchError, WorkerProcess, run_command
from heartbeat_stream.local.apache_kafka import ApacheKafka, MissingTool
from heartbeat_stream.local.broker import SESSION_TIMEOUT_MS, Broker
from heartbeat_stream.local.postgres import PostgresServer
from heartbeat_stream.local.scratch import ScratchDirectory
from heartbeat_stream.sinks.table import Table
from heartbeat_stream.streaming.topic_admin import until_shown

__all__ = ["EMBEDDED", "KAFKA", "Ground", "Site", "open_ground"]

EMBEDDED, KAFKA = "embedded", "kafka"

#: Commits tell when they were, to measure latencies by the database's clock.
_POSTGRES_SETTINGS = {"track_commit_timestamp": "on", "max_wal_size": "4GB"}
_KAFKA_HEAP = "1g"


@dataclass(frozen=True)
class Site:
    """What one measured worker, and those that come after it on its state, have for themselves."""

    app_id: str
    topic: str
    partitions: int
    keyed: bool
    directory: Path
    settings: Mapping[str, str]

    @property
    def table(self) -> Table:
        return Table.parse(self.settings["HEARTBEAT_TABLE"])

    @property
    def data(self) -> Path:
        return Path(self.settings["HEARTBEAT_DATA_DIR"])

    @property
    def repartition(self) -> str:
        """The topic through which an unkeyed source goes."""
        return f"{self.app_id}-{self.settings.get('HEARTBEAT_JOBS', 'heartbeats')}-repartition"

    def init(self) -> None:
        """Create what is missing, as a user would. Raises BenchError."""
        run_command("init", self.settings, self.directory)

    def worker(self, **settings: str) -> WorkerProcess:
        """A worker that is not started yet; settings by name, as in `cooldown_ms="0"`."""
        changed = {f"HEARTBEAT_{name.upper()}": value for name, value in settings.items()}
        return WorkerProcess({**self.settings, **changed}, self.directory)


class Ground:
    """One broker and one database, cleared between benchmarks."""

    def __init__(self, kind: str, brokers: str, postgres: PostgresServer, directory: Path) -> None:
        self.kind = kind
        self.brokers = brokers
        self.postgres = postgres
        self.directory = directory
        # A cluster that is there may have seen other benchmarks.
        self._prefix = f"bench-{time.time_ns() // 1_000_000:x}"
        self._names = 0

    async def create_topic(self, title: str, partitions: int) -> str:
        """The name of a new topic. Raises KafkaError, and TopicError where it does not appear."""
        name = f"{self._new_name()}-{title}"
        async with self._admin() as admin:
            await admin.create_topics([NewTopic(name, partitions, 1)])
            await until_shown(admin, [name])
        return name

    async def clear(self) -> None:
        """Delete all topics of benchmarks, where the broker can: the embedded one cannot."""
        if self.kind == EMBEDDED:
            return
        async with self._admin() as admin:
            ours = [name for name in await admin.list_topics() if name.startswith(self._prefix)]
            if ours:
                await admin.delete_topics(ours)

    @contextlib.asynccontextmanager
    async def _admin(self) -> AsyncIterator[AIOKafkaAdminClient]:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.brokers)
        await admin.start()
        try:
            yield admin
        finally:
            await admin.close()

    def _new_name(self) -> str:
        self._names += 1
        return f"{self._prefix}-{self._names}"

    def site(self, topic: str, partitions: int, *, keyed: bool, **settings: str) -> Site:
        """A group, a table and a directory that nobody has used."""
        name = self._new_name()
        directory = self.directory / name
        directory.mkdir()
        changed = {f"HEARTBEAT_{key.upper()}": value for key, value in settings.items()}
        return Site(
            name,
            topic,
            partitions,
            keyed,
            directory,
            {
                "HEARTBEAT_BROKERS": self.brokers,
                "HEARTBEAT_DATABASE_URL": self.postgres.url,
                "HEARTBEAT_SESSION_TIMEOUT_MS": str(SESSION_TIMEOUT_MS),
                "HEARTBEAT_APP_ID": name,
                "HEARTBEAT_TOPIC": topic,
                "HEARTBEAT_DEAD_LETTER_TOPIC": f"{name}-dead-letter",
                "HEARTBEAT_SOURCE_KEYED": str(keyed).lower(),
                "HEARTBEAT_TABLE": name.replace("-", "_"),
                "HEARTBEAT_PARTITIONS": str(partitions),
                "HEARTBEAT_DATA_DIR": str(directory / "data"),
                **changed,
            },
        )

    async def execute(self, sql: str) -> None:
        """Run a statement in the database."""
        connection = await asyncpg.connect(self.postgres.url)
        try:
            await connection.execute(sql)
        finally:
            await connection.close()


@contextlib.contextmanager
def open_ground(kind: str, brokers: str | None = None) -> Iterator[Ground]:
    """Start the servers; `brokers` names a cluster that is there and stays, instead of one.

    kind: `embedded` or `kafka`. Raises ServerError, and BenchError where Apache Kafka cannot run.
    """
    with contextlib.ExitStack() as stack:
        scratch = stack.enter_context(contextlib.closing(ScratchDirectory("bench")))
        if brokers is None:
            try:
                broker: Broker | ApacheKafka = (
                    Broker(scratch=scratch) if kind == EMBEDDED else ApacheKafka(heap=_KAFKA_HEAP)
                )
            except MissingTool as error:
                raise BenchError(f"{error}: install it, or bench with --broker embedded") from error
            stack.enter_context(contextlib.closing(broker)).start()
            brokers = broker.bootstrap_servers
        postgres = stack.enter_context(PostgresServer(settings=_POSTGRES_SETTINGS))
        yield Ground(kind, brokers, postgres, scratch.subdirectory("sites"))
