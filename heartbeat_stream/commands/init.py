"""Create what is missing: the topics with their configuration, and the table with its schema.
What exists is left as it is, so that this is safe to repeat. `heartbeat-stream check` says whether
it is right.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from heartbeat_stream.commands import CommandError
from heartbeat_stream.config.flags import fields
from heartbeat_stream.settings import Settings

if TYPE_CHECKING:
    from heartbeat_stream.sinks.table import Table

NAME = "init"
HELP = "create the topics and the table where they are missing"
EXAMPLE = "heartbeat-stream init --partitions 32 --replication-factor 3"
SETTINGS = (
    "jobs",
    *fields(
        "Kafka", "Kafka security", "PostgreSQL", "Market messages", "Message filter", "Tracking"
    ),
)
QUIET = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Settings are all there is."""


def run(args: argparse.Namespace, settings: Settings) -> int:
    asyncio.run(_create_topics(settings))
    code = asyncio.run(_create_table(settings)) if "heartbeats" in settings.jobs else 0
    if "market" in settings.jobs and settings.market_table is not None:
        code |= asyncio.run(_create_message_table(settings, settings.market_table, of_texts=False))
    if "messages" in settings.jobs and settings.messages_sink == "table":
        code |= asyncio.run(_create_message_table(settings, settings.messages_table, of_texts=True))
    if "tracking" in settings.jobs:
        code |= asyncio.run(_create_event_table(settings))
    return code


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
    from heartbeat_stream.sinks.table import Table
    from heartbeat_stream.sinks.table_inspection import create_table, inspect_table

    table = Table.parse(settings.table)

    async def create(connection: Any) -> tuple[bool, list[str]]:
        created = await create_table(connection, table)
        return created, [one.message for one in await inspect_table(connection, table)]

    return await _in_database(settings, table, create)


async def _create_message_table(settings: Settings, name: str, *, of_texts: bool) -> int:
    from heartbeat_stream.sinks.message_table import message_ddl, text_ddl
    from heartbeat_stream.sinks.table import Table
    from heartbeat_stream.sinks.table_inspection import (
        create_table,
        inspect_message_table,
        inspect_text_table,
    )

    table = Table.parse(name)
    define = text_ddl if of_texts else message_ddl
    inspect = inspect_text_table if of_texts else inspect_message_table

    async def create(connection: Any) -> tuple[bool, list[str]]:
        created = await create_table(connection, table, define)
        problem = await inspect(connection, table)
        return created, [problem] if problem is not None else []

    return await _in_database(settings, table, create)


async def _create_event_table(settings: Settings) -> int:
    import time

    from heartbeat_stream.sinks.event_inspection import create_event_table, inspect_event_table
    from heartbeat_stream.sinks.event_partitions import next_days
    from heartbeat_stream.sinks.table import Table

    table = Table.parse(settings.tracking_table)
    days = next_days(time.time_ns() // 1_000_000)

    async def create(connection: Any) -> tuple[bool, list[str]]:
        created = await create_event_table(connection, table, days)
        problem = await inspect_event_table(connection, table, days)
        return created, [problem] if problem is not None else []

    return await _in_database(settings, table, create)


async def _in_database(
    settings: Settings,
    table: Table,
    create: Callable[[Any], Awaitable[tuple[bool, list[str]]]],
) -> int:
    """Create a table, and say whether it was, and what is wrong with it."""
    import asyncpg

    from heartbeat_stream.checks.database import unreachable
    from heartbeat_stream.database import postgres_settings
    from heartbeat_stream.sinks.connections import Connections
    from heartbeat_stream.sinks.postgres_errors import SinkUnavailable
    from heartbeat_stream.sinks.table_inspection import why_not_created

    connections = Connections(postgres_settings(settings, pool_size=1))
    try:
        async with connections.use() as connection:
            created, problems = await create(connection)
    except (SinkUnavailable, OSError) as error:
        raise CommandError(f"{unreachable(settings)} ({error})") from error
    except asyncpg.PostgresError as error:
        raise CommandError(f"table {table} cannot be created: {why_not_created(error)}") from error
    finally:
        await connections.stop(timeout=1.0)
    print(f"{'created' if created else 'exists '}  table {table}", flush=True)
    for problem in problems:
        print(f"WRONG    {problem}", flush=True)
    return 1 if problems else 0
