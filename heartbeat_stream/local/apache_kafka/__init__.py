"""Apache Kafka on this machine, for the tests and the benchmarks: needs Java, and Maven once."""

from heartbeat_stream.local.apache_kafka.cluster import ApacheKafka
from heartbeat_stream.local.apache_kafka.jars import MissingTool

__all__ = ["ApacheKafka", "MissingTool"]
