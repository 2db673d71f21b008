"""Fixtures: the broker that a test runs on, and the world of a test of workers.

A test that asks for ``cluster`` or ``world`` is run twice: on the embedded broker, and on Apache
Kafka, marked ``kafka``. Those in ``tests/kafka`` run on Apache Kafka alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from heartbeat_stream.local.stack import EmbeddedStack
from tests.support.apache_kafka import TEST_BROKERS, kafka_for_tests
from tests.support.world import Cluster, World, running_workers

#: The least that a broker takes by default, and what the tests' own Kafka is good for.
SESSION_TIMEOUT_OF_OTHERS_MS = 6_000
SESSION_TIMEOUT_MS = 3_000

#: For a test that has nothing to gain from being run on both.
on_embedded = pytest.mark.parametrize("cluster", ["embedded"], indirect=True)
on_kafka = pytest.mark.parametrize(
    "cluster", [pytest.param("kafka", marks=pytest.mark.kafka)], indirect=True
)


@pytest.fixture(scope="session")
def apache_kafka() -> Iterator[Cluster]:
    """Apache Kafka, one for all tests: use names of your own."""
    given = bool(os.environ.get(TEST_BROKERS))
    with kafka_for_tests() as bootstrap_servers:
        yield Cluster(
            "kafka",
            bootstrap_servers,
            SESSION_TIMEOUT_OF_OTHERS_MS if given else SESSION_TIMEOUT_MS,
        )


@pytest.fixture(
    scope="session", params=["embedded", pytest.param("kafka", marks=pytest.mark.kafka)]
)
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """The embedded broker and Apache Kafka, one after the other."""
    if request.param == "kafka":
        kafka: Cluster = request.getfixturevalue("apache_kafka")
        return kafka
    broker = request.getfixturevalue("stack").broker
    return Cluster("embedded", broker.bootstrap_servers, broker.session_timeout_ms)


@pytest.fixture
def world(cluster: Cluster, stack: EmbeddedStack, tmp_path: Path) -> Iterator[World]:
    """The world of one test. Its workers end with it; their logs are shown where it failed."""
    with running_workers(tmp_path) as workers:
        yield World(cluster, stack.postgres.url, tmp_path, workers)
