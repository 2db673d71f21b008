"""Does the cluster answer, and what does it hold?"""

from __future__ import annotations

from collections.abc import AsyncIterator

from aiokafka.errors import KafkaError

from heartbeat_stream.checks.finding import Finding, fail, ok, warn
from heartbeat_stream.checks.topics import check_topics
from heartbeat_stream.jobs.catalogue import jobs_topics
from heartbeat_stream.settings import Settings
from heartbeat_stream.streaming.diagnosis import nobody_answers, why_unreachable
from heartbeat_stream.streaming.permissions import (
    Operation,
    Permissions,
    denied_to_worker,
    describe_permissions,
)
from heartbeat_stream.streaming.topic_admin import broker_count, describe_topics, kafka_admin
from heartbeat_stream.streaming.topics import all_topics


async def check_kafka(settings: Settings) -> AsyncIterator[Finding]:
    """The brokers, the topics, and what this login may do. May take some seconds where nobody
    answers."""
    servers = ",".join(settings.brokers)
    jobs = jobs_topics(settings)
    names = [spec.name for spec in all_topics(settings, {}, jobs)]
    try:
        async with kafka_admin(settings) as admin:
            brokers = await broker_count(admin)
            permissions = await describe_permissions(admin, names, settings.app_id)
            existing = await describe_topics(admin, names)
    except (KafkaError, OSError, TimeoutError) as error:
        yield fail(f"{await why_unreachable(settings)} ({type(error).__name__})")
        return
    yield ok(f"Kafka at {servers}: {brokers} broker{'' if brokers == 1 else 's'}")
    hidden = _hidden(permissions)
    for finding in check_topics(settings, brokers, existing, hidden, jobs):
        yield finding
    if permissions is not None:
        for line in denied_to_worker(settings, permissions, jobs):
            yield fail(line)
        for name, allowed in permissions.topics.items():
            if Operation.DESCRIBE_CONFIGS not in allowed and name not in hidden:
                yield warn(
                    f"this login lacks DescribeConfigs on topic {name}, so its configuration has "
                    "not been looked at: give it the ACLs of docs/security.md"
                )


def _hidden(permissions: Permissions | None) -> set[str]:
    """Topics of which this login may not even know whether they exist."""
    if permissions is None:
        return set()
    return {name for name, allowed in permissions.topics.items() if not allowed}


def unreachable(settings: Settings) -> str:
    """What to say, and to do, where no broker answers."""
    return nobody_answers(settings)
