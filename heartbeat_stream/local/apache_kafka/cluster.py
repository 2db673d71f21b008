"""Apache Kafka: one node or three, in KRaft mode, on free loopback ports.

Each node is a broker and a controller. Everything lies in a temporary directory and ends with this
process, also when that is killed.
"""

from __future__ import annotations

import base64
import os
import signal
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from heartbeat_stream.local.apache_kafka.jars import LOGGING, NO_STRAY_FILE, java, kafka_jars
from heartbeat_stream.local.probe import probe
from heartbeat_stream.local.process import LOOPBACK, ServerError, ServerProcess, free_port, suspend
from heartbeat_stream.local.scratch import ScratchDirectory
from heartbeat_stream.local.server import LocalServer

# A machine of two cores that has other things to do needs a minute for three nodes.
START_SECONDS = 180.0
FORMAT_SECONDS = 60.0
STOP_SECONDS = 30.0
HEAP = "512m"


class Node:
    """One broker and controller: its ports, its files and its process."""

    def __init__(self, node_id: int, directory: Path) -> None:
        self.node_id = node_id
        self.directory = directory
        self.port = free_port()
        self.controller_port = free_port()
        self.process: ServerProcess | None = None

    @property
    def properties(self) -> Path:
        return self.directory / "server.properties"

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.running


class ApacheKafka(LocalServer):
    """A cluster of one node or three. A context manager; safe for one thread.

    extra_config: further or other broker properties, as in `{"log.retention.ms": "1000"}`.
    heap: the most memory for each node's objects, as Java has it.
    format_options: further ones of `kafka-storage.sh format`, as `--add-scram` and a user.

    Set for tests and benchmarks: topics are not created by themselves; a group's first rebalance
    does not wait; sessions may be as short as a second; retention and compaction are looked at
    every second. With three nodes, topics and offsets have three replicas and need two in sync.
    """

    def __init__(
        self,
        nodes: int = 1,
        extra_config: Mapping[str, str] | None = None,
        heap: str = HEAP,
        format_options: Sequence[str] = (),
    ) -> None:
        if nodes not in (1, 3):
            raise ValueError(f"a cluster has one node or three, not {nodes}")
        self._java = java()
        self._jars = kafka_jars()
        self._scratch = ScratchDirectory("kafka")
        self._extra_config = dict(extra_config or {})
        self._heap = heap
        self._format_options = list(format_options)
        # As Kafka writes it; a leading dash would be taken for an option.
        encoded = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        self.cluster_id = "H" + encoded[1:]
        self.nodes = [Node(i, self._scratch.subdirectory(f"node-{i}")) for i in range(nodes)]

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{LOOPBACK}:{node.port}" for node in self.nodes)

    def pid(self, node: int = 0) -> int:
        """The node's process id. Raises ServerError where it was never started."""
        return self._process(node).pid

    def log_tail(self, node: int = 0, lines: int = 20) -> list[str]:
        return self._process(node).log_tail(lines)

    def _process(self, node: int) -> ServerProcess:
        process = self.nodes[node].process
        if process is None:
            raise ServerError(f"node {node} has not been started")
        return process

    def start(self) -> Self:
        """Start all nodes that do not run, and wait until each sees all. Raises ServerError."""
        new = [node for node in self.nodes if not node.properties.exists()]
        for node in new:
            node.properties.write_text(self._properties(node))
        formatters = [self._format(node) for node in new]
        for formatter in formatters:
            if formatter.wait(FORMAT_SECONDS) != 0:
                raise ServerError(f"no storage: {' | '.join(formatter.log_tail())}")
        starting = [node for node in self.nodes if not node.running]
        for node in starting:
            self._launch(node)
        for node in starting:
            self._wait_until_ready(node)
        return self

    def _properties(self, node: Node) -> str:
        several = len(self.nodes) > 1
        replicas, in_sync = ("3", "2") if several else ("1", "1")
        voters = (f"{n.node_id}@{LOOPBACK}:{n.controller_port}" for n in self.nodes)
        config = {
            "process.roles": "broker,controller",
            "node.id": str(node.node_id),
            "controller.quorum.voters": ",".join(voters),
            "listeners": (
                f"PLAINTEXT://{LOOPBACK}:{node.port},CONTROLLER://{LOOPBACK}:{node.controller_port}"
            ),
            "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{node.port}",
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(node.directory / "data"),
            "num.network.threads": "2",
            "num.io.threads": "4",
            "auto.create.topics.enable": "false",
            "default.replication.factor": replicas,
            "min.insync.replicas": in_sync,
            "offsets.topic.num.partitions": "4",
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.num.partitions": "4",
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": in_sync,
            "group.initial.rebalance.delay.ms": "0",
            "group.min.session.timeout.ms": "1000",
            # A killed node cannot come back before its old session is over.
            "broker.session.timeout.ms": "4000",
            "broker.heartbeat.interval.ms": "500",
            "log.initial.task.delay.ms": "1000",
            "log.retention.check.interval.ms": "1000",
            "log.cleaner.backoff.ms": "1000",
            # The default of 128 MB is a quarter of the heap.
            "log.cleaner.dedupe.buffer.size": "8388608",
            **self._extra_config,
        }
        return "".join(f"{name}={value}\n" for name, value in config.items())

    def _java_process(self, node: Node, name: str, log: str, arguments: list[str]) -> ServerProcess:
        options = [
            f"-Xmx{self._heap}",
            "-XX:+UseSerialGC",
            NO_STRAY_FILE,
            f"-Djava.io.tmpdir={node.directory}",
            f"-Dlog4j2.configurationFile={LOGGING}",
        ]
        return ServerProcess(
            name,
            [self._java, *options, "-cp", f"{self._jars}/*", *arguments],
            directory=node.directory,
            log=node.directory / log,
            environment={"LC_ALL": "C.UTF-8", "PATH": os.defpath},
            end_signal=signal.SIGKILL,  # nobody wants its data any more
            remove=[self._scratch.path],
        )

    def _format(self, node: Node) -> ServerProcess:
        command = ["kafka.tools.StorageTool", "format", "--cluster-id", self.cluster_id]
        formatter = self._java_process(
            node,
            "formatter",
            "format.log",
            [*command, "--config", str(node.properties), *self._format_options],
        )
        formatter.start()
        return formatter

    def _launch(self, node: Node) -> None:
        node.process = self._java_process(
            node, f"Kafka node {node.node_id}", "kafka.log", ["kafka.Kafka", str(node.properties)]
        )
        node.process.start()

    def _wait_until_ready(self, node: Node) -> None:
        def answers() -> bool:
            cluster = probe(LOOPBACK, node.port)
            running = sum(other.running for other in self.nodes)
            return (
                cluster is not None
                and cluster.cluster_id == self.cluster_id
                and cluster.brokers >= running
            )

        self._process(node.node_id).wait_until_ready(answers, START_SECONDS)

    def stop_node(self, node: int = 0) -> None:
        """End a node in an orderly way, or kill it after 30 s. Its data stays. Safe to repeat.

        Of three nodes two have to run, or an orderly end takes the whole 30 s.
        """
        self._process(node).stop(signal.SIGTERM, STOP_SECONDS)

    def kill(self, node: int = 0) -> None:
        """End a node at once, with SIGKILL. Its data stays."""
        self._process(node).stop(signal.SIGKILL)

    def start_node(self, node: int = 0) -> None:
        """Start a node that was stopped or killed, on its data and its ports. Raises ServerError.

        Returns when it answers and sees as many brokers as run. It may not lead or have caught up.
        """
        self._launch(self.nodes[node])
        self._wait_until_ready(self.nodes[node])

    def restart(self, node: int = 0) -> None:
        """stop_node() and start_node()."""
        self.stop_node(node)
        self.start_node(node)

    def freeze(self, node: int = 0) -> None:
        """Suspend a node: its connections stay open, nothing answers."""
        suspend(self.pid(node))

    def thaw(self, node: int = 0) -> None:
        """Undo freeze(). Does nothing to a node that runs, or that was stopped or killed."""
        if self.nodes[node].running:
            os.kill(self.pid(node), signal.SIGCONT)

    def close(self) -> None:
        """Kill all nodes and remove their data. Safe to repeat."""
        for node in self.nodes:
            if node.process is not None:
                node.process.stop(signal.SIGKILL)
        self._scratch.close()
