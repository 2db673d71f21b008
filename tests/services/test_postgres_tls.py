"""PostgreSQL with sslmode=verify-full: a server that proves its name, and those that do not."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import asyncpg
import pytest

from heartbeat_stream.core.heartbeat import Heartbeat
from heartbeat_stream.local.stack import EmbeddedStack
from tests.support.certificates import Authority
from tests.support.oracle import Oracle, TargetTable, now_ms
from tests.support.program import lines_of, run_program
from tests.support.secure_postgres import CERTIFICATE_ROLE, SecurePostgres
from tests.support.world import Cluster, World, running_workers

pytestmark = pytest.mark.services

PASSWORD = "s3cret/p@ss:word"
WRONG = "wr0ng-secret"


class Login(NamedTuple):
    """A role with a database of its own."""

    name: str


@pytest.fixture
async def login(secure_postgres: SecurePostgres) -> AsyncIterator[Login]:
    name = f"t{uuid.uuid4().hex[:12]}"
    connection = await asyncpg.connect(secure_postgres.admin_url)
    await connection.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{PASSWORD}'")
    await connection.execute(f"CREATE DATABASE {name} OWNER {name}")
    yield Login(name)
    await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
    await connection.execute(f"DROP ROLE {name}")
    await connection.close()


def refused(
    case: str, secure: SecurePostgres, login: Login, directory: Path
) -> tuple[str, list[str]]:
    """A URL that leads to nothing, and what is to be said about it."""
    name = login.name
    stranger = Authority(directory, "stranger")
    cases = {
        "untrusted certificate": (
            secure.url(name, PASSWORD, database=name, ca=stranger.file),
            ["is not trusted", "sslrootcert"],
        ),
        "wrong host name": (
            secure.url(name, PASSWORD, database=name, host="127.0.0.1"),
            ["another host's", "HEARTBEAT_DATABASE_URL"],
        ),
        "wrong password": (
            secure.url(name, WRONG, database=name),
            ["password authentication failed", name],
        ),
        "no TLS": (
            f"postgresql://{name}:{WRONG}@localhost:{secure.server.port}/{name}?sslmode=disable",
            ["no encryption"],
        ),
    }
    return cases[case]


async def test_a_server_that_proves_its_name(
    secure_postgres: SecurePostgres, login: Login, stack: EmbeddedStack, tmp_path: Path
) -> None:
    broker = stack.broker
    cluster = Cluster("embedded", broker.bootstrap_servers, broker.session_timeout_ms)
    url = secure_postgres.url(login.name, PASSWORD, database=login.name)
    with running_workers(tmp_path) as workers:
        world = World(cluster, url, tmp_path, workers)
        for command in ("init", "check"):
            done = run_program(command, world.environment, tmp_path)
            assert (done.returncode, done.stderr, lines_of(done, "FAIL")) == (0, "", [])
        worker = world.start_worker(log_level="DEBUG")
        oracle = Oracle()
        await world.send([Heartbeat(7, f"{n}", now_ms(), "a", 1) for n in range(9)], oracle=oracle)
        admin = secure_postgres.admin_url.rpartition("/")[0]
        await oracle.matches(TargetTable(f"{admin}/{login.name}", world.settings.table))
        await worker.stopped()
        assert PASSWORD not in worker.log_text()


async def test_a_client_that_proves_its_name(
    secure_postgres: SecurePostgres, on_stack: dict[str, str], tmp_path: Path
) -> None:
    role, authority = CERTIFICATE_ROLE, secure_postgres.authority
    connection = await asyncpg.connect(secure_postgres.admin_url)
    await connection.execute(f"CREATE ROLE {role} LOGIN")
    await connection.execute(f"CREATE DATABASE {role} OWNER {role}")
    base = secure_postgres.url(role, "", database=role).replace(":@", "@")
    for name, code in ((role, 0), ("somebody-else", 1), (None, 1)):
        url = base
        if name is not None:
            certificate, key = authority.issue(name)
            url += f"&sslcert={certificate}&sslkey={key}"
        environment = {**on_stack, "HEARTBEAT_DATABASE_URL": url}
        done = run_program("init", environment, tmp_path)
        assert done.returncode == code, (name, done.stderr)
        assert done.stderr.count("\n") == code
        assert (role in done.stderr) == bool(code), done.stderr
    await connection.execute(f"DROP DATABASE {role} WITH (FORCE)")
    await connection.execute(f"DROP ROLE {role}")
    await connection.close()


@pytest.mark.parametrize(
    "case", ["untrusted certificate", "wrong host name", "wrong password", "no TLS"]
)
async def test_a_refusal_is_one_line_that_says_what_to_do(
    case: str,
    secure_postgres: SecurePostgres,
    login: Login,
    on_stack: dict[str, str],
    tmp_path: Path,
) -> None:
    url, words = refused(case, secure_postgres, login, tmp_path)
    environment = {**on_stack, "HEARTBEAT_DATABASE_URL": url}
    done = run_program("init", environment, tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert [word for word in words if word not in done.stderr] == [], done.stderr
    check = run_program("check", environment, tmp_path)
    (failed,) = [
        line for line in lines_of(check, "FAIL") if "PostgreSQL" in line or "no conn" in line
    ]
    assert [word for word in words if word not in failed] == [], failed
    for said in (done.stderr, check.stdout + check.stderr):
        assert WRONG not in said
        assert PASSWORD not in said
