"""Create what is missing: the topics with their configuration, and the table. What exists is left
as it is, so that this is safe to repeat. `heartbeat-stream check` says whether it is right.
"""

from __future__ import annotations

import argparse
import asyncio

from heartbeat_stream.commands import CommandError
from heartbeat_stream.config.flags import fields
from heartbeat_stream.settings import Settings

NAME = "init"
HELP = "create the topics and the table where they are missing"
EXAMPLE = "heartbeat-stream init --partitions 32 --replication-factor 3"
SETTINGS = (
    "jobs",
    *fields("Kafka", "Kafka security", "PostgreSQL", "Market messages", "Message filter"),
)
QUIET = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Settings are all there is."""


def run(args: argparse.Namespace, settings: Settings) -> int:
    asyncio.run(_create_topics(settings))
    return asyncio.run(_create_table(settings)) if "heartbeats" in settings.jobs else 0


async def _create_topics(settings: Settings) -> None:
    from aiokafka.errors import KafkaError

    from heartbeat_stream.jobs.catalogue import jobs_topics
    from heartbeat_stream.streaming.diagnosis import why_unreachable
    from heartbeat_stream.streaming.permissions import denied_to_init, describe_permissions
    from heartbeat_stream.streaming.topic_admin import (
        TopicError,
        describe_topics,
        ensure_topics,
        kafka_admin,
    )
    from heartbeat_stream.streaming.topics import all_topics

    jobs = jobs_topics(settings)
    try:
        async with kafka_admin(settings) as admin:
            names = [spec.name for spec in all_topics(settings, {}, jobs)]
            permissions = await describe_permissions(admin, names)
            if permissions is not None:
                _require(denied_to_init(permissions, [job.source.name for job in jobs]))
            # The sources first: what follows depends on how they really are.
            created = await ensure_topics(admin, [job.source_spec() for job in jobs])
            wanted = all_topics(settings, await describe_topics(admin, names), jobs)
            created += await ensure_topics(admin, wanted)
            existing = await describe_topics(admin, names)
    except TopicError as error:
        raise CommandError(str(error)) from error
    except (KafkaError, OSError, TimeoutError) as error:
        raise CommandError(f"{await why_unreachable(settings)} ({type(error).__name__})") from error
    for name in names:
        topic = existing[name]
        done = "created" if name in created else "exists "
        print(f"{done}  topic {name}, {topic.partitions} partitions", flush=True)


def _require(denied: list[str]) -> None:
    if denied:
        raise CommandError(denied[0])


async def _create_table(settings: Settings) -> int:
    import asyncpg

    from heartbeat_stream.checks.database import unreachable
    from heartbeat_stream.database import postgres_settings
    from heartbeat_stream.sinks.connections import Connections
    from heartbeat_stream.sinks.postgres_errors import SinkUnavailable
    from heartbeat_stream.sinks.table import Table
    from heartbeat_stream.sinks.table_inspection import create_table, inspect_table, why_not_created

    table = Table.parse(settings.table)
    connections = Connections(postgres_settings(settings, pool_size=1))
    try:
        async with connections.use() as connection:
            created = await create_table(connection, table)
            problems = await inspect_table(connection, table)
    except (SinkUnavailable, OSError) as error:
        raise CommandError(f"{unreachable(settings)} ({error})") from error
    except asyncpg.PostgresError as error:
        raise CommandError(f"table {table} cannot be created: {why_not_created(error)}") from error
    finally:
        await connections.stop(timeout=1.0)
    print(f"{'created' if created else 'exists '}  table {table}", flush=True)
    for problem in problems:
        print(f"WRONG    {problem.message}", flush=True)
    return 1 if problems else 0
