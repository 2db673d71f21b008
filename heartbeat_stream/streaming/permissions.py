"""What a login may do with topics and with the group, as the broker itself tells (KIP-430).

aiokafka 0.14 knows the metadata request up to version 5 and reads the wrong answer to a description
of groups with operations; so both requests are written down here, in its own terms.

Relied upon: ``Request.prepare`` chooses a class by the versions that a broker offers, and raises
NotImplementedError where it offers none of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import GroupAuthorizationFailedError, KafkaError, TopicAuthorizationFailedError
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Boolean, Bytes, Int16, Int32, Schema, String

from heartbeat_stream.settings import Settings
from heartbeat_stream.streaming.topics import JobTopics, heartbeat_topics

__all__ = ["Operation", "Permissions", "denied_to_init", "denied_to_worker", "describe_permissions"]

#: What an answer says that tells nothing: it was not asked for, or the broker does not know.
_UNTOLD = (-(2**31), 0)


class Operation(IntEnum):
    """Kafka's codes of what an ACL allows."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DESCRIBE = 8
    DESCRIBE_CONFIGS = 10

    @property
    def shown(self) -> str:
        """As kafka-acls.sh has it."""
        return self.name.title().replace("_", "")


@dataclass(frozen=True)
class Permissions:
    """What is allowed. A topic or group of which the broker told nothing is left out."""

    topics: Mapping[str, frozenset[Operation]]
    group: frozenset[Operation] | None = None


def denied_to_worker(
    settings: Settings, permissions: Permissions, jobs: Sequence[JobTopics] | None = None
) -> list[str]:
    """What a worker needs and this login may not do: one line each, with what to do.

    For these jobs; for the heartbeats alone where none are given.
    """
    needs = _needs(settings, jobs if jobs is not None else [heartbeat_topics(settings)])
    lines: list[str] = []
    for name, operations in needs.items():
        if name in permissions.topics:
            lines += _lacking(f"topic {name}", operations, permissions.topics[name])
    if permissions.group is not None:
        lines += _lacking(f"group {settings.app_id}", {Operation.READ}, permissions.group)
    return lines


def denied_to_init(permissions: Permissions, sources: Iterable[str]) -> list[str]:
    """The same for `init`, as far as it can be told before anything is created.

    A topic that may not be described could be created, and would then not be seen. How long a
    source keeps its records decides how long the repartition topic does.
    """
    lines: list[str] = []
    for name, allowed in permissions.topics.items():
        needed = {Operation.DESCRIBE}
        if name in sources and allowed:
            needed.add(Operation.DESCRIBE_CONFIGS)
        lines += _lacking(f"topic {name}", needed, allowed)
    return lines


def _needs(settings: Settings, jobs: Iterable[JobTopics]) -> dict[str, set[Operation]]:
    needs: defaultdict[str, set[Operation]] = defaultdict(set)
    for job in jobs:
        needs[job.source.name].add(Operation.READ)
        for output in job.outputs:
            needs[output.name].add(Operation.WRITE)
        internal = job.changelogs if job.keyed else (job.repartition, *job.changelogs)
        for name in internal:
            needs[name] |= {Operation.READ, Operation.WRITE}
    needs[settings.dead_letter_topic].add(Operation.WRITE)
    return needs


def _lacking(what: str, needed: set[Operation], allowed: frozenset[Operation]) -> Iterable[str]:
    for operation in sorted(needed - allowed):
        yield (
            f"this login lacks {operation.shown} on {what}: give it the ACLs of docs/security.md"
        )


async def describe_permissions(
    admin: AIOKafkaAdminClient, topics: Iterable[str], group: str | None = None
) -> Permissions | None:
    """Ask what we may do. None where the broker is too old to tell. Creates no topic.

    Of a topic that does not exist nothing is told, unless it may not be described: that is told of
    any name. Raises KafkaError.
    """
    try:
        allowed = await _topics(admin, list(topics))
        return Permissions(allowed, await _group(admin, group) if group is not None else None)
    except NotImplementedError:  # aiokafka's, where a broker offers no version that it knows
        return None


async def _topics(admin: AIOKafkaAdminClient, names: list[str]) -> dict[str, frozenset[Operation]]:
    answer = await admin._send_request(_TopicOperations(names))
    allowed: dict[str, frozenset[Operation]] = {}
    for topic in answer.to_object()["topics"]:
        if topic["error_code"] == TopicAuthorizationFailedError.errno:
            allowed[topic["topic"]] = frozenset()
        elif topic["error_code"] == 0 and topic["authorized_operations"] not in _UNTOLD:
            allowed[topic["topic"]] = _operations(topic["authorized_operations"])
    return allowed


async def _group(admin: AIOKafkaAdminClient, group: str) -> frozenset[Operation] | None:
    try:
        coordinator = await admin.find_coordinator(group)
    except GroupAuthorizationFailedError:
        return frozenset()
    except KafkaError as error:
        if error.retriable:  # a new cluster takes a moment to have one
            return None
        raise
    answer = await admin._send_request(_GroupOperations(group), coordinator)
    (found,) = answer.to_object()["groups"]
    if found["error_code"] == GroupAuthorizationFailedError.errno:
        return frozenset()
    if found["error_code"] != 0 or found["authorized_operations"] in _UNTOLD:
        return None
    return _operations(found["authorized_operations"])


def _operations(bits: int) -> frozenset[Operation]:
    return frozenset(operation for operation in Operation if bits >> operation & 1)


class _MetadataResponse8(Response):  # type: ignore[misc]
    API_KEY = 3
    API_VERSION = 8
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "brokers",
            Array(
                ("node_id", Int32),
                ("host", String("utf-8")),
                ("port", Int32),
                ("rack", String("utf-8")),
            ),
        ),
        ("cluster_id", String("utf-8")),
        ("controller_id", Int32),
        (
            "topics",
            Array(
                ("error_code", Int16),
                ("topic", String("utf-8")),
                ("is_internal", Boolean),
                (
                    "partitions",
                    Array(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", Array(Int32)),
                        ("isr", Array(Int32)),
                        ("offline_replicas", Array(Int32)),
                    ),
                ),
                ("authorized_operations", Int32),
            ),
        ),
        ("cluster_authorized_operations", Int32),
    )


class _MetadataRequest8(RequestStruct):  # type: ignore[misc]
    API_KEY = 3
    API_VERSION = 8
    RESPONSE_TYPE = _MetadataResponse8
    SCHEMA = Schema(
        ("topics", Array(String("utf-8"))),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_authorized_operations", Boolean),
        ("include_topic_authorized_operations", Boolean),
    )


class _TopicOperations(Request[_MetadataRequest8]):  # type: ignore[misc]
    API_KEY = 3

    def __init__(self, topics: list[str]) -> None:
        self._topics = topics

    def build(self, request_struct_class: type[_MetadataRequest8]) -> _MetadataRequest8:
        return request_struct_class(self._topics, False, False, True)


class _DescribeGroupsResponse3(Response):  # type: ignore[misc]
    API_KEY = 15
    API_VERSION = 3
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "groups",
            Array(
                ("error_code", Int16),
                ("group", String("utf-8")),
                ("state", String("utf-8")),
                ("protocol_type", String("utf-8")),
                ("protocol", String("utf-8")),
                (
                    "members",
                    Array(
                        ("member_id", String("utf-8")),
                        ("client_id", String("utf-8")),
                        ("client_host", String("utf-8")),
                        ("member_metadata", Bytes),
                        ("member_assignment", Bytes),
                    ),
                ),
                ("authorized_operations", Int32),
            ),
        ),
    )


class _DescribeGroupsRequest3(RequestStruct):  # type: ignore[misc]
    API_KEY = 15
    API_VERSION = 3
    RESPONSE_TYPE = _DescribeGroupsResponse3
    SCHEMA = Schema(("groups", Array(String("utf-8"))), ("include_authorized_operations", Boolean))


class _GroupOperations(Request[_DescribeGroupsRequest3]):  # type: ignore[misc]
    API_KEY = 15

    def __init__(self, group: str) -> None:
        self._group = group

    def build(self, request_struct_class: type[_DescribeGroupsRequest3]) -> _DescribeGroupsRequest3:
        return request_struct_class([self._group], True)
