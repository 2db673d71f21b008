"""Kafka's ACLs: read from the commands in docs/, and given to a cluster."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import for_code
from aiokafka.protocol.admin import CreateAclsRequest

__all__ = ["Acl", "Names", "documented_acls", "give"]

DOCS = Path(__file__).parents[2] / "docs"

TOPIC, GROUP, TRANSACTIONAL_ID = 2, 3, 5
KINDS = {TOPIC: "topic", GROUP: "group", TRANSACTIONAL_ID: "transactional id"}
LITERAL, PREFIXED = 3, 4
ALLOW = 3
OPERATIONS = {"Read": 3, "Write": 4, "Create": 5, "Describe": 8, "DescribeConfigs": 10}


@dataclass(frozen=True)
class Acl:
    """One operation that one user may do."""

    user: str
    operation: str
    resource: int
    name: str
    pattern: int = LITERAL

    def __str__(self) -> str:
        return f"{self.user} {self.operation} on {KINDS[self.resource]} {self.name}"


class Names(NamedTuple):
    """What a test calls the things that the document calls by their default names."""

    app_id: str
    topic: str
    dead_letter_topic: str

    def applied_to(self, acl: Acl) -> Acl:
        renamed = {
            "heartbeat": self.topic,
            "heartbeat.dead-letter": self.dead_letter_topic,
            "heartbeat.dead-letter.replayed": f"{self.dead_letter_topic}.replayed",
            "heartbeat-stream": self.app_id,
            "heartbeat-stream-": f"{self.app_id}-",
        }
        return replace(acl, name=renamed[acl.name])


def documented_acls(document: str = "security.md") -> list[Acl]:
    """Every ACL of a document, an operation each."""
    text = (DOCS / document).read_text(encoding="utf-8")
    commands = re.findall(r"^acl (--.*)$", text, re.MULTILINE)
    return [acl for command in commands for acl in _acls(shlex.split(command))]


def _acls(arguments: list[str]) -> Iterator[Acl]:
    parser = argparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("--allow-principal", required=True)
    parser.add_argument("--operation", action="append", required=True)
    parser.add_argument("--topic")
    parser.add_argument("--group")
    parser.add_argument("--transactional-id")
    parser.add_argument("--resource-pattern-type", default="literal")
    given = parser.parse_args(arguments)
    pattern = {"literal": LITERAL, "prefixed": PREFIXED}[given.resource_pattern_type]
    user = given.allow_principal.removeprefix("User:")
    for operation in given.operation:
        if given.topic is not None:
            yield Acl(user, operation, TOPIC, given.topic, pattern)
        if given.group is not None:
            yield Acl(user, operation, GROUP, given.group, pattern)
        if given.transactional_id is not None:
            yield Acl(user, operation, TRANSACTIONAL_ID, given.transactional_id, pattern)


async def give(admin: AIOKafkaAdminClient, acls: Iterable[Acl]) -> None:
    """Create these ACLs. A broker heeds them a moment later."""
    for acl in acls:
        request = CreateAclsRequest(
            acl.resource,
            acl.name,
            acl.pattern,
            f"User:{acl.user}",
            "*",
            OPERATIONS[acl.operation],
            ALLOW,
        )
        answer = await admin._send_to_controller(request)
        for code, message in answer.creation_responses:
            if code:
                raise for_code(code)(f"{acl}: {message}")
