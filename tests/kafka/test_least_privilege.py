"""The ACLs of docs/security.md: enough for everything, and none of them too much."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from heartbeat_stream.checks.kafka import check_kafka
from heartbeat_stream.commands import CommandError
from heartbeat_stream.commands.init import _create_topics
from heartbeat_stream.core.heartbeat import Heartbeat
from heartbeat_stream.local.stack import EmbeddedStack
from heartbeat_stream.settings import Settings
from heartbeat_stream.streaming.topic_admin import ensure_topics, kafka_admin
from heartbeat_stream.streaming.topics import all_topics, source_topic
from tests.support.acls import Acl, Names, documented_acls, give
from tests.support.brokers import SESSION_TIMEOUT_MS
from tests.support.kafka_admin import admin
from tests.support.oracle import Oracle, now_ms
from tests.support.program import lines_of, run_program
from tests.support.secure_kafka import INIT_USER, WORKER_USER, SecureKafka
from tests.support.wait import wait_until_async
from tests.support.world import Cluster, World, running_workers

pytestmark = pytest.mark.kafka

ACLS = documented_acls()


@pytest.fixture
def world(secure_kafka: SecureKafka, stack: EmbeddedStack, tmp_path: Path) -> Iterator[World]:
    servers = secure_kafka.kafka.bootstrap_servers
    with running_workers(tmp_path) as workers:
        yield World(
            Cluster("kafka", servers, SESSION_TIMEOUT_MS), stack.postgres.url, tmp_path, workers
        )


def names_of(settings: Settings) -> Names:
    return Names(settings.app_id, settings.topic, settings.dead_letter_topic)


def as_user(user: str, secure_kafka: SecureKafka, world: World) -> dict[str, str]:
    return {**world.environment, **secure_kafka.login("SCRAM-SHA-512", user)}


def test_the_document_has_them() -> None:
    assert {acl.user for acl in ACLS} == {INIT_USER, WORKER_USER}
    assert len(ACLS) == len(set(ACLS)) == 15


async def test_with_exactly_these_everything_works(
    secure_kafka: SecureKafka, world: World, tmp_path: Path
) -> None:
    names = names_of(world.settings)
    async with admin(secure_kafka.kafka.bootstrap_servers) as client:
        await give(client, map(names.applied_to, ACLS))
    done = run_program("init", as_user(INIT_USER, secure_kafka, world), tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    environment = as_user(WORKER_USER, secure_kafka, world)
    done = run_program("check", environment, tmp_path)
    assert (done.returncode, lines_of(done, "FAIL"), lines_of(done, "warn")) == (0, [], [])
    world.environment = environment
    oracle = Oracle()
    for _ in range(2):  # the second one reads its changelogs
        worker = await world.start_worker().ready()
        await world.send([Heartbeat(7, f"{n}", now_ms(), "a", 1) for n in range(9)], oracle=oracle)
        async with world.producer() as producer:
            await producer.send_and_wait(world.topic, b"no heartbeat")
        await oracle.matches(world.table)
        await worker.until_metric("heartbeat_dead_letters_total", 1)
        await worker.stopped()
        assert "uthorization" not in worker.log_text()


@pytest.mark.parametrize("missing", ACLS, ids=str)
async def test_one_that_is_missing_is_named(
    missing: Acl, secure_kafka: SecureKafka, world: World
) -> None:
    settings = Settings.load(as_user(missing.user, secure_kafka, world))
    names = names_of(settings)
    async with admin(secure_kafka.kafka.bootstrap_servers) as client:
        await give(client, (names.applied_to(acl) for acl in ACLS if acl != missing))
    said = said_by_init if missing.user == INIT_USER else said_by_check
    if missing.operation == "DescribeConfigs" or missing.user == WORKER_USER:
        await create(world, everything=missing.user == WORKER_USER)
    last: list[str] = []

    async def names_it() -> bool:
        last[:] = await said(settings)
        return any(says(line, missing, names) for line in last)

    try:
        await wait_until_async(names_it, 20, what="a line about it", every=0.1)
    except AssertionError as error:
        raise AssertionError(f"{error}: {last}") from None


def says(line: str, missing: Acl, names: Names) -> bool:
    name = names.applied_to(missing).name
    if missing.operation == "Create":
        return f'topic "{name}' in line and "cannot be created: Authorization failed" in line
    return f"lacks {missing.operation} on" in line and name in line


async def create(world: World, *, everything: bool) -> None:
    settings = world.settings
    async with kafka_admin(settings) as client:
        specs = all_topics(settings, {}) if everything else [source_topic(settings)]
        await ensure_topics(client, specs)


async def said_by_init(settings: Settings) -> list[str]:
    try:
        await _create_topics(settings)
    except CommandError as error:
        return [str(error)]
    return []


async def said_by_check(settings: Settings) -> list[str]:
    return [str(finding) async for finding in check_kafka(settings)]
