"""The GRANTs of docs/security.md: enough for `init` and a worker, and none of them too much."""

from __future__ import annotations

import re
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from heartbeat_stream.core.heartbeat import Heartbeat
from heartbeat_stream.local.stack import EmbeddedStack
from heartbeat_stream.sinks.postgres import PostgresSettings, PostgresSink, SinkUnavailable, Table
from heartbeat_stream.sinks.table_inspection import create_table, inspect_table, why_not_created

ROOT = Path(__file__).parents[2]
TABLE = Table(None, "room_status_moment_g5")
TS = 1_700_000_000_000


def documented_statements() -> list[str]:
    """The statements of the document's block, each GRANT with one privilege only."""
    text = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```sql\n(.*?)```", text, re.DOTALL)
    statements = [" ".join(part.split()) for part in block.split(";") if part.strip()]
    return [single for statement in statements for single in _singles(statement)]


def _singles(statement: str) -> list[str]:
    found = re.fullmatch(r"(.*GRANT )([A-Z, ]+)( ON .*)", statement)
    if found is None:
        return [statement]
    before, privileges, after = found.groups()
    return [before + one + after for one in privileges.split(", ")]


STATEMENTS = documented_statements()
GRANTS = [statement for statement in STATEMENTS if "GRANT " in statement]


class Database:
    """A new database with two roles, under names of its own for those of the document."""

    def __init__(self, server_url: str) -> None:
        self._server = server_url
        self.name = f"t{uuid.uuid4().hex[:12]}"

    def url(self, role: str) -> str:
        place = self._server.rpartition("@")[2].rpartition("/")[0]
        return f"postgresql://{self._renamed(role)}@{place}/{self.name}"

    def _renamed(self, text: str) -> str:
        return re.sub(r"\bheartbeat_", f"{self.name}_", text).replace("hotels", self.name)

    async def execute(self, *statements: str) -> None:
        """As the superuser, in this database."""
        await self._run(self.url("postgres"), *map(self._renamed, statements))

    async def _run(self, url: str, *statements: str) -> None:
        connection = await asyncpg.connect(url)
        try:
            for statement in statements:
                await connection.execute(statement)
        finally:
            await connection.close()

    async def create(self) -> None:
        await self._run(self._server, f"CREATE DATABASE {self.name}")

    async def drop(self) -> None:
        roles = ", ".join(map(self._renamed, ("heartbeat_init", "heartbeat_worker")))
        await self._run(
            self._server, f"DROP DATABASE {self.name} WITH (FORCE)", f"DROP ROLE {roles}"
        )

    async def init(self) -> list[str]:
        """What `init` has to say, as its role; nothing where the table is made."""
        try:
            connection = await asyncpg.connect(self.url("heartbeat_init"))
        except asyncpg.PostgresError as error:
            return [str(error)]
        try:
            await create_table(connection, TABLE)
            return [problem.message for problem in await inspect_table(connection, TABLE)]
        except asyncpg.PostgresError as error:
            return [why_not_created(error)]
        finally:
            await connection.close()

    async def work(self) -> list[str]:
        """What a worker has to say, as its role: of the table, and of writing a row twice."""
        try:
            connection = await asyncpg.connect(self.url("heartbeat_worker"))
        except asyncpg.PostgresError as error:
            return [str(error)]
        try:
            said = [problem.message for problem in await inspect_table(connection, TABLE)]
        finally:
            await connection.close()
        sink = PostgresSink(PostgresSettings(self.url("heartbeat_worker")), TABLE)
        try:
            for version in (TS, TS + 1):
                await sink.upsert([Heartbeat(7, "101", version, "a", 1)])
        except SinkUnavailable as error:
            said.append(str(error))
        finally:
            await sink.stop(1.0)
        return said


@pytest.fixture
async def database(stack: EmbeddedStack) -> AsyncIterator[Database]:
    database = Database(stack.postgres.url)
    await database.create()
    yield database
    await database.drop()


def test_the_document_has_them() -> None:
    assert len(GRANTS) == len(set(GRANTS)) == 8


async def test_with_exactly_these_everything_works(database: Database) -> None:
    await database.execute(*STATEMENTS)
    assert await database.init() == []
    assert await database.work() == []


@pytest.mark.parametrize("missing", GRANTS)
async def test_one_that_is_missing_is_named(database: Database, missing: str) -> None:
    await database.execute(*(statement for statement in STATEMENTS if statement != missing))
    said = await database.init()
    if "TO heartbeat_worker" in missing:
        assert said == []
        said = await database.work()
    found = re.search(r"GRANT ([A-Z]+) ON", missing)
    assert found is not None
    words = {
        "CONNECT": ["permission denied for database"],
        "USAGE": ["lacks USAGE on every schema"],
        "CREATE": ["permission denied for schema public"],
    }.get(found[1], [found[1], TABLE.name])
    assert any(all(word in line for word in words) for line in said), said
