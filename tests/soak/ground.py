"""What a soak runs on: Kafka, PostgreSQL and workers of its own, all of which may be mistreated."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

from heartbeat_stream.local.apache_kafka import ApacheKafka
from heartbeat_stream.local.postgres import PostgresServer
from tests.support.brokers import SESSION_TIMEOUT_MS
from tests.support.verdict import Crash, crashes_told
from tests.support.worker import Worker, Workers
from tests.support.world import Cluster, World

__all__ = ["Ground"]


@dataclass
class Ground:
    """The servers, the workers that run, and the moments after which one may write early."""

    kafka: ApacheKafka
    postgres: PostgresServer
    world: World
    chance: random.Random
    crashes: list[Crash] = field(default_factory=list)
    workers: list[Worker] = field(default_factory=list)
    started: list[Worker] = field(default_factory=list)

    @classmethod
    def prepare(
        cls, kafka: ApacheKafka, postgres: PostgresServer, directory: Path, seed: int
    ) -> Ground:
        cluster = Cluster("kafka", kafka.bootstrap_servers, SESSION_TIMEOUT_MS)
        world = World(cluster, postgres.url, directory, Workers(directory))
        world.set(
            partitions=8,
            buffer_window_ms=1_000,
            cooldown_ms=10_000,
            checkpoint_ms=1_000,
            database_statement_timeout_ms=5_000,
            database_connect_timeout_ms=5_000,
            cache_rooms=5_000,
        )
        return cls(kafka, postgres, world, random.Random(seed))

    async def start_worker(self) -> Worker:
        """One more, which is ready."""
        worker = self.world.start_worker()
        self.workers.append(worker)
        self.started.append(worker)
        return await worker.ready(120)

    async def all_ready(self) -> None:
        """Wait for all of them. What has ended by itself, and said why, is started again."""
        for worker in list(self.workers):
            try:
                await worker.ready(120)
            except AssertionError:
                if worker.running or "Traceback" in worker.log_text():
                    raise
                self.crashes.append(Crash.now())
                self.workers.remove(worker)
                await self.start_worker()

    def all_crashes(self) -> list[Crash]:
        """Those that were caused, and those that workers tell of."""
        told = [crash for worker in self.started for crash in crashes_told(worker.log_text())]
        return self.crashes + told

    def any_worker(self) -> Worker:
        return self.chance.choice(self.workers)
