"""Apache Kafka for the tests: a new node, or a cluster that is there already."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from heartbeat_stream.local.apache_kafka import ApacheKafka

__all__ = ["PATIENT", "TEST_BROKERS", "ApacheKafka", "is_available", "kafka_for_tests"]

TEST_BROKERS = "HEARTBEAT_TEST_BROKERS"
#: For a node that no test stops: on a machine that is so busy that it says nothing for seconds, its
#: controller is not to take it for dead.
PATIENT = {"broker.session.timeout.ms": "60000"}


@contextmanager
def kafka_for_tests() -> Iterator[str]:
    """Bootstrap servers: of the cluster in HEARTBEAT_TEST_BROKERS, or of a new one of one node."""
    given = os.environ.get(TEST_BROKERS)
    if given:
        yield given
        return
    with ApacheKafka(extra_config=PATIENT) as kafka:
        yield kafka.bootstrap_servers


def is_available() -> bool:
    """Whether the tests on Apache Kafka can run here, as far as a look at the PATH tells."""
    return bool(os.environ.get(TEST_BROKERS) or (shutil.which("java") and shutil.which("mvn")))
