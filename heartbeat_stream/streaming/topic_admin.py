"""Topics on the cluster: what there is, and creating what is missing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, TopicAlreadyExistsError, for_code

from heartbeat_stream.settings import Settings
from heartbeat_stream.streaming.security import kafka_auth
from heartbeat_stream.streaming.topics import TopicSpec, TopicState

__all__ = [
    "TopicError",
    "broker_count",
    "describe_topics",
    "ensure_topics",
    "kafka_admin",
    "until_shown",
]

# A topic that was just created is not known to every broker at once.
_APPEAR_S = 10.0
_ASK_AGAIN_S = 0.1


class TopicError(Exception):
    """A topic could not be created. The message is one line: the topic, what the broker says."""


@asynccontextmanager
async def kafka_admin(
    settings: Settings, *, request_timeout_ms: int = 10_000
) -> AsyncIterator[AIOKafkaAdminClient]:
    """A connection for the time of the block. Raises aiokafka's KafkaError where there is none."""
    admin = AIOKafkaAdminClient(
        bootstrap_servers=list(settings.brokers),
        client_id=f"{settings.app_id}-admin",
        request_timeout_ms=request_timeout_ms,
        **kafka_auth(settings),
    )
    try:
        await admin.start()
        yield admin
    finally:
        await admin.close()


async def broker_count(admin: AIOKafkaAdminClient) -> int:
    """How many brokers the cluster has now."""
    return len((await admin.describe_cluster())["brokers"])


async def describe_topics(
    admin: AIOKafkaAdminClient, names: Iterable[str]
) -> dict[str, TopicState]:
    """The topics among `names` that exist, with their configuration as far as the broker tells it.

    Asks for all topics and picks: asking by name may create a missing one. One that this user may
    not describe counts as missing. Raises KafkaError.
    """
    wanted = set(names)
    found = [topic for topic in await admin.describe_topics() if topic["topic"] in wanted]
    configs = await _describe_configs(admin, [topic["topic"] for topic in found])
    return {
        topic["topic"]: TopicState(
            name=topic["topic"],
            partitions=len(topic["partitions"]),
            replication_factor=min(
                (len(partition["replicas"]) for partition in topic["partitions"]), default=0
            ),
            config=configs.get(topic["topic"], {}),
        )
        for topic in found
        if topic["partitions"]
    }


async def ensure_topics(
    admin: AIOKafkaAdminClient, specs: Sequence[TopicSpec], *, timeout_s: float = 30.0
) -> list[str]:
    """Create the topics that are missing and return their names, once the cluster shows them.

    A topic that exists is left as it is, also when another worker creates it in the same moment.
    Raises TopicError, or KafkaError where the cluster is out of reach.
    """
    existing = await describe_topics(admin, [spec.name for spec in specs])
    missing = [spec for spec in specs if spec.name not in existing]
    if not missing:
        return []
    response = await admin.create_topics(
        [
            NewTopic(
                spec.name,
                spec.partitions,
                spec.replication_factor,
                topic_configs=dict(spec.config),
            )
            for spec in missing
        ],
        timeout_ms=int(timeout_s * 1000),
    )
    created = []
    for topic in response.to_object()["topic_errors"]:
        error = for_code(topic["error_code"])
        if topic["error_code"] == 0:
            created.append(topic["topic"])
        elif not issubclass(error, TopicAlreadyExistsError):
            said = topic.get("error_message") or error.description or error.__name__
            raise TopicError(f'topic "{topic["topic"]}" cannot be created: {_one_line(said)}')
    await until_shown(admin, [spec.name for spec in missing])
    return created


async def until_shown(admin: AIOKafkaAdminClient, names: Iterable[str]) -> None:
    """Return once a broker shows all of these topics, which were just created. Raises TopicError
    where it still does not after 10 s, and KafkaError."""
    created = set(names)
    try:
        async with asyncio.timeout(_APPEAR_S):
            while missing := created - set(await admin.list_topics()):
                await asyncio.sleep(_ASK_AGAIN_S)
    except TimeoutError:
        raise TopicError(
            f'topic "{min(missing)}" was created and is still not shown by the cluster'
        ) from None


async def _describe_configs(
    admin: AIOKafkaAdminClient, names: Sequence[str]
) -> dict[str, Mapping[str, str]]:
    if not names:
        return {}
    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
    try:
        responses = await admin.describe_configs(resources)
    except KafkaError:
        # Not every broker knows this request, and it needs a permission of its own.
        return {}
    return {
        resource["resource_name"]: {
            entry["config_names"]: entry["config_value"]
            for entry in resource["config_entries"]
            if entry["config_value"] is not None
        }
        for response in responses
        for resource in response.to_object()["resources"]
        if resource["error_code"] == 0
    }


def _one_line(text: str) -> str:
    return " ".join(text.split())
