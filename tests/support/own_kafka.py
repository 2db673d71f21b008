"""Fixtures: clusters of Apache Kafka that a test may mistreat, and a world on one of them.

The cluster of HEARTBEAT_TEST_BROKERS is nobody's to stop: these are started in any case.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from heartbeat_stream.local.apache_kafka import ApacheKafka
from heartbeat_stream.local.process import LOOPBACK, free_port
from heartbeat_stream.local.stack import EmbeddedStack
from tests.support.brokers import SESSION_TIMEOUT_MS
from tests.support.kafka_proxy import KafkaProxy, kafka_proxy
from tests.support.world import Cluster, World, running_workers


@pytest.fixture(scope="module")
def one_node() -> Iterator[ApacheKafka]:
    """A broker of its own for the tests that stop or freeze it."""
    with ApacheKafka() as kafka:
        yield kafka


@pytest.fixture(scope="module")
def three_nodes() -> Iterator[ApacheKafka]:
    """Three nodes: topics have three replicas, and two must be in sync."""
    with ApacheKafka(nodes=3) as kafka:
        yield kafka


class Proxied(NamedTuple):
    """A broker, and the ports between which a proxy has to stand for its clients to come to it."""

    kafka: ApacheKafka
    outside: int
    inside: int


@pytest.fixture(scope="module")
def proxied_kafka() -> Iterator[Proxied]:
    """One node with a second listener, which sends its clients to the proxy's port."""
    kafka = ApacheKafka()
    (node,) = kafka.nodes
    outside, inside = free_port(), free_port()
    direct = f"PLAINTEXT://{LOOPBACK}:{node.port}"
    controller = f"CONTROLLER://{LOOPBACK}:{node.controller_port}"
    kafka._extra_config |= {
        "listeners": f"{direct},PROXIED://{LOOPBACK}:{inside},{controller}",
        "advertised.listeners": f"{direct},PROXIED://{LOOPBACK}:{outside}",
        "listener.security.protocol.map": ",".join(
            f"{name}:PLAINTEXT" for name in ("PLAINTEXT", "PROXIED", "CONTROLLER")
        ),
    }
    with kafka:
        yield Proxied(kafka, outside, inside)


@pytest.fixture
async def proxy(proxied_kafka: Proxied) -> AsyncIterator[KafkaProxy]:
    """The proxy of ``proxied_kafka``, which lets everything pass at first."""
    async with kafka_proxy(proxied_kafka.outside, proxied_kafka.inside) as proxy:
        yield proxy


@pytest.fixture
def proxied_world(
    proxied_kafka: Proxied, proxy: KafkaProxy, stack: EmbeddedStack, tmp_path: Path
) -> Iterator[World]:
    """The world of a test whose workers, and nobody else, talk to the broker through ``proxy``."""
    for world in _world(proxied_kafka.kafka, stack, tmp_path, 1):
        world.set(brokers=f"{LOOPBACK}:{proxied_kafka.outside}")
        yield world


def _world(
    kafka: ApacheKafka, stack: EmbeddedStack, directory: Path, replicas: int
) -> Iterator[World]:
    cluster = Cluster("kafka", kafka.bootstrap_servers, SESSION_TIMEOUT_MS)
    with running_workers(directory) as workers:
        world = World(cluster, stack.postgres.url, directory, workers)
        world.set(replication_factor=replicas)
        yield world


@pytest.fixture
def own_world(one_node: ApacheKafka, stack: EmbeddedStack, tmp_path: Path) -> Iterator[World]:
    """The world of a test on ``one_node``, which runs again after it, whatever the test did."""
    yield from _world(one_node, stack, tmp_path, 1)
    one_node.thaw()
    one_node.start()


@pytest.fixture
def wide_world(three_nodes: ApacheKafka, stack: EmbeddedStack, tmp_path: Path) -> Iterator[World]:
    """The world of a test on ``three_nodes``, all of which run again after it."""
    yield from _world(three_nodes, stack, tmp_path, 3)
    for number in range(len(three_nodes.nodes)):
        three_nodes.thaw(number)
    three_nodes.start()
