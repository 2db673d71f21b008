"""heartbeat-stream: the newest heartbeat of every room, from Kafka to PostgreSQL."""

__version__ = "0.1.0"
