"""With exactly the ACLs and GRANTs of the documents a login may do what docs/replay.md tells."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from heartbeat_stream.core.heartbeat import Heartbeat
from heartbeat_stream.local.stack import EmbeddedStack
from tests.support.acls import Names, documented_acls, give
from tests.support.brokers import SESSION_TIMEOUT_MS
from tests.support.command import run_command
from tests.support.kafka_admin import admin
from tests.support.oracle import Oracle, now_ms
from tests.support.secure_kafka import WORKER_USER, SecureKafka
from tests.support.world import Cluster, World, encode, running_workers

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture
def world(secure_kafka: SecureKafka, stack: EmbeddedStack, tmp_path: Path) -> Iterator[World]:
    servers = secure_kafka.kafka.bootstrap_servers
    with running_workers(tmp_path) as workers:
        yield World(
            Cluster("kafka", servers, SESSION_TIMEOUT_MS), stack.postgres.url, tmp_path, workers
        )


async def allow(secure_kafka: SecureKafka, world: World, *documents: str) -> None:
    settings = world.settings
    names = Names(settings.app_id, settings.topic, settings.dead_letter_topic)
    acls = [names.applied_to(acl) for one in documents for acl in documented_acls(one)]
    async with admin(secure_kafka.kafka.bootstrap_servers) as client:
        await give(client, [acl for acl in acls if acl.user == WORKER_USER])


async def test_the_workers_login_and_what_it_needs_more(
    secure_kafka: SecureKafka, world: World
) -> None:
    await world.prepare(max_future_ms=60_000)
    oracle = Oracle()
    worker = await world.start_worker().ready()
    ahead = Heartbeat(7, "ahead", now_ms() + 3_600_000)
    await world.send([Heartbeat(7, f"{n}", now_ms()) for n in range(9)], oracle=oracle)
    async with world.producer() as producer:
        await producer.send_and_wait(world.topic, encode(ahead))
    await oracle.matches(world.table)
    await world.no_lag()
    await worker.stopped()

    await allow(secure_kafka, world, "security.md")
    world.environment |= secure_kafka.login("SCRAM-SHA-512", WORKER_USER)
    listed = await run_command(world, "state", "list")
    assert len(listed.out.splitlines()) == 9
    allowed: tuple[tuple[str, ...], ...] = (
        ("state", "get", "7", "3"),
        ("replay", "rows", "--yes"),
        ("state", "forget", "7", "3", "--yes"),
        ("replay", "source", "--from", "earliest", "--reset-state", "--yes"),
    )
    for command in allowed:
        await run_command(world, *command)
    again = ("replay", "source", "--from", "earliest", "--to", "2030-01-01", "--yes")
    letters = ("replay", "dead-letters", "--yes")
    for command, topic in ((again, world.topic), (letters, world.dead_letter_topic)):
        refused = await run_command(world, *command, code=1)
        assert topic in refused.err

    await allow(secure_kafka, world, "replay.md")
    done = await run_command(world, *letters, max_future_ms=10_000_000_000)
    assert "1  ts-too-new: goes to the source topic" in done.out
    await run_command(world, *again)


@pytest.fixture
async def role(world: World) -> AsyncIterator[str]:
    """A login of the database that may nothing yet."""
    name = f"t{uuid.uuid4().hex[:12]}"
    async with world.table.connect() as connection:
        await connection.execute(f"CREATE ROLE {name} LOGIN")
        yield name
        await connection.execute(f"DROP OWNED BY {name}")
        await connection.execute(f"DROP ROLE {name}")


async def test_the_grants(world: World, role: str) -> None:
    await world.prepare(cooldown_ms=600_000)
    oracle = Oracle()
    worker = await world.start_worker().ready()
    await world.send([Heartbeat(7, f"{n}", now_ms()) for n in range(9)], oracle=oracle)
    await oracle.matches(world.table)
    await world.no_lag()
    await worker.stopped()

    place = world.settings.database_url.rpartition("@")[2]
    url = f"postgresql://{role}@{place}"
    table = world.table.table.quoted
    rows, forget = ("replay", "rows", "--yes"), ("state", "forget", "7", "3", "--row", "--yes")
    async with world.table.connect() as connection:
        await connection.execute(f"TRUNCATE {table}")
        await connection.execute(f"GRANT SELECT, INSERT, UPDATE ON {table} TO {role}")
        for missing in ("SELECT", "INSERT", "UPDATE"):
            await connection.execute(f"REVOKE {missing} ON {table} FROM {role}")
            refused = await run_command(world, *rows, code=1, database_url=url)
            assert f"{missing} " in refused.err
            assert world.settings.table in refused.err
            assert await world.table.rows() == {}
            await connection.execute(f"GRANT {missing} ON {table} TO {role}")
        done = await run_command(world, *rows, database_url=url)
        assert "9 rows were written" in done.out
        assert oracle.differences(await world.table.rows()) == []

        refused = await run_command(world, *forget, code=1, database_url=url)
        assert "permission denied" in refused.err
        assert oracle.differences(await world.table.rows()) == []
        await connection.execute(f"GRANT DELETE ON {table} TO {role}")
        done = await run_command(world, *forget, database_url=url)
        assert len(await world.table.rows()) == 8
