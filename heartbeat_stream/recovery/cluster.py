"""Asking the cluster: topics, offsets, the members of a group. Each call is bounded in time."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import (
    CommitFailedError,
    GroupCoordinatorNotAvailableError,
    GroupLoadInProgressError,
    NotCoordinatorForGroupError,
    for_code,
)
from aiokafka.structs import TopicPartition

from heartbeat_stream.recovery.errors import RecoveryError
from heartbeat_stream.recovery.moments import AtOffset, Earliest, Moment
from heartbeat_stream.settings import Settings
from heartbeat_stream.streaming.producer import BatchProducer
from heartbeat_stream.streaming.security import kafka_auth
from heartbeat_stream.streaming.topic_admin import describe_topics, kafka_admin

__all__ = [
    "commit",
    "committed",
    "connection",
    "ends_of",
    "look_while_running",
    "offsets_at",
    "open_consumer",
    "open_producer",
    "partition_counts",
    "refuse_while_running",
]

#: Faust's members tell each other the addresses of their web views.
_URL = re.compile(rb'"url":\s*"([^"]{1,200})"')
_SHOWN_MEMBERS = 5
_COORDINATOR_S: Final = 30.0
_COORDINATOR_PAUSE_S: Final = 0.25
_NO_COORDINATOR_YET: Final = (
    GroupCoordinatorNotAvailableError,
    GroupLoadInProgressError,
    NotCoordinatorForGroupError,
)

T = TypeVar("T")


def connection(settings: Settings) -> dict[str, Any]:
    """The arguments with which any of aiokafka's clients reaches the brokers."""
    return {"bootstrap_servers": list(settings.brokers), **kafka_auth(settings)}


@asynccontextmanager
async def open_consumer(
    settings: Settings, group: str | None = None, **options: Any
) -> AsyncIterator[AIOKafkaConsumer]:
    """A consumer that joins no group; ``group`` is the one that it commits for.

    As the workers, it reads nothing of a transaction that is open or was aborted.
    """
    consumer = AIOKafkaConsumer(
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="none",
        isolation_level="read_committed",
        **{**connection(settings), **options},
    )
    try:
        await consumer.start()
        yield consumer
    finally:
        await consumer.stop()


@asynccontextmanager
async def open_producer(settings: Settings) -> AsyncIterator[BatchProducer]:
    producer = BatchProducer(
        client_id=f"{settings.app_id}-recovery", request_timeout_ms=20_000, **connection(settings)
    )
    try:
        await producer.start()
        yield producer
    finally:
        await producer.stop()


async def partition_counts(settings: Settings, names: Iterable[str]) -> dict[str, int]:
    """How many partitions each of these topics has. Raises RecoveryError where one is missing."""
    wanted = list(names)
    async with kafka_admin(settings) as admin:
        found = await describe_topics(admin, wanted)
    for name in wanted:
        if name not in found:
            raise RecoveryError(
                f"there is no topic {name}: see HEARTBEAT_APP_ID and HEARTBEAT_TOPIC, and what "
                "`heartbeat-stream check` says"
            )
    return {name: found[name].partitions for name in wanted}


async def ends_of(settings: Settings, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Where each partition ends for the workers: in front of a transaction that is open."""
    async with open_consumer(settings) as consumer:
        return dict(await consumer.end_offsets(list(tps)))


async def offsets_at(
    settings: Settings, tps: Iterable[TopicPartition], moment: Moment
) -> dict[TopicPartition, int]:
    """Where this moment lies in each partition: between its first record and its end."""
    places = list(tps)
    async with open_consumer(settings) as consumer:
        first = await consumer.beginning_offsets(places)
        if isinstance(moment, Earliest):
            return dict(first)
        ends = await consumer.end_offsets(places)
        if isinstance(moment, AtOffset):
            return {tp: min(max(moment.offset, first[tp]), ends[tp]) for tp in places}
        found = await consumer.offsets_for_times(dict.fromkeys(places, moment.ms))
        # None: no record is so young.
        return {tp: found[tp].offset if found.get(tp) else ends[tp] for tp in places}


# -- groups --------------------------------------------------------------------------------------


async def refuse_while_running(settings: Settings, why: str) -> None:
    """Raise RecoveryError, which names the members, where the group of the workers has any."""
    members = await _members(settings)
    if members:
        shown = ", ".join(members[:_SHOWN_MEMBERS])
        more = f" and {len(members) - _SHOWN_MEMBERS} more" if members[_SHOWN_MEMBERS:] else ""
        raise RecoveryError(
            f"workers of {settings.app_id} are running ({shown}{more}): {why}. Stop all of them "
            "first; one that was killed counts for HEARTBEAT_SESSION_TIMEOUT_MS more"
        )


async def look_while_running(settings: Settings, why: str, *, dry_run: bool) -> list[str]:
    """As :func:`refuse_while_running`, but what a dry run has to say of it in place of an error."""
    try:
        await refuse_while_running(settings, why)
    except RecoveryError as error:
        if not dry_run:
            raise
        return [f"it would be refused now: {error}"]
    return []


async def _members(settings: Settings) -> list[str]:
    """The members of the workers' group: the addresses of their web views, where they have one."""

    async def describe(admin: Any) -> list[Any]:
        (response,) = await admin.describe_consumer_groups([settings.app_id])
        ((code, *_, members),) = [group[:6] for group in response.groups]
        if code:
            raise for_code(code)(f"the group {settings.app_id} cannot be described")
        return list(members)

    return sorted(_shown(*member) for member in await _of_coordinator(settings, describe))


def _shown(member_id: str, client_id: str, host: str, metadata: bytes, _assignment: bytes) -> str:
    url = _URL.search(metadata or b"")
    name = url[1].decode(errors="replace") if url else member_id
    return f"{name} on {host.removeprefix('/')}" if host else name


async def committed(
    settings: Settings, group: str, tps: Iterable[TopicPartition]
) -> dict[TopicPartition, int | None]:
    """What a group has committed of each partition; None where it has nothing."""
    places = list(tps)
    found = await _of_coordinator(
        settings, lambda admin: admin.list_consumer_group_offsets(group, partitions=places)
    )
    offsets = {tp: found[tp].offset if tp in found else -1 for tp in places}
    return {tp: offset if offset >= 0 else None for tp, offset in offsets.items()}


async def _of_coordinator(settings: Settings, ask: Callable[[Any], Awaitable[T]]) -> T:
    """What a group's coordinator answers, which a new cluster makes when it is first asked for."""
    last = asyncio.get_running_loop().time() + _COORDINATOR_S
    async with kafka_admin(settings) as admin:
        while True:
            try:
                return await ask(admin)
            except _NO_COORDINATOR_YET:
                if asyncio.get_running_loop().time() > last:
                    raise
                await asyncio.sleep(_COORDINATOR_PAUSE_S)


async def commit(settings: Settings, offsets: Mapping[TopicPartition, int]) -> None:
    """Set what the workers' group has committed. The broker refuses it while the group has members.

    Raises RecoveryError then.
    """
    try:
        async with open_consumer(settings, settings.app_id) as consumer:
            consumer.assign(list(offsets))
            await consumer.commit(dict(offsets))
    except CommitFailedError as error:
        raise RecoveryError(
            f"a worker of {settings.app_id} has been started meanwhile, and its group's offsets "
            "are not changed: stop it, and repeat the command"
        ) from error
