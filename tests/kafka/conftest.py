"""Tests in here run on Apache Kafka alone."""

import pytest

from tests.support.world import Cluster


@pytest.fixture(scope="session")
def cluster(apache_kafka: Cluster) -> Cluster:
    return apache_kafka
