"""Does the cluster answer, and what does it hold?"""

from __future__ import annotations

from collections.abc import AsyncIterator

from aiokafka.errors import KafkaError

from heartbeat_stream.checks.finding import Finding, fail, ok
from heartbeat_stream.checks.topics import check_topics
from heartbeat_stream.settings import Settings
from heartbeat_stream.streaming.topic_admin import broker_count, describe_topics, kafka_admin
from heartbeat_stream.streaming.topics import all_topics


async def check_kafka(settings: Settings) -> AsyncIterator[Finding]:
    """The brokers and the topics. May take some seconds where nobody answers."""
    servers = ",".join(settings.brokers)
    try:
        async with kafka_admin(settings) as admin:
            brokers = await broker_count(admin)
            existing = await describe_topics(
                admin, [spec.name for spec in all_topics(settings, {})]
            )
    except (KafkaError, OSError, TimeoutError) as error:
        yield fail(f"{unreachable(settings)} ({type(error).__name__})")
        return
    yield ok(f"Kafka at {servers}: {brokers} broker{'' if brokers == 1 else 's'}")
    for finding in check_topics(settings, brokers, existing):
        yield finding


def unreachable(settings: Settings) -> str:
    """What to say, and to do, where no broker answers."""
    return (
        f"no Kafka broker answers at {','.join(settings.brokers)}: start it, or set "
        "HEARTBEAT_BROKERS and HEARTBEAT_KAFKA_SECURITY_PROTOCOL"
    )
