"""`init` and `check` as a user runs them, against real brokers and the embedded PostgreSQL."""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from aiokafka.admin import AIOKafkaAdminClient

from heartbeat_stream.settings import Settings
from heartbeat_stream.streaming.topic_admin import describe_topics, ensure_topics, kafka_admin
from heartbeat_stream.streaming.topics import TopicSpec, all_topics
from tests.support.world import Cluster

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def environ(cluster: Cluster, on_stack: dict[str, str]) -> dict[str, str]:
    """The variables of a worker on the embedded servers, and of one on Apache Kafka."""
    return {**on_stack, "HEARTBEAT_BROKERS": cluster.bootstrap_servers}


@pytest.fixture
def run(environ: dict[str, str], tmp_path: Path) -> Run:
    """Runs the program in its own directory, on the stack; arguments are variables to change."""

    def run(command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        changed = {f"HEARTBEAT_{name}": value for name, value in variables.items()}
        return subprocess.run(
            [sys.executable, "-m", "heartbeat_stream", command],
            env={**os.environ, **environ, **changed},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


def execute(environ: dict[str, str], *statements: str) -> None:
    async def work() -> None:
        connection = await asyncpg.connect(environ["HEARTBEAT_DATABASE_URL"])
        try:
            for statement in statements:
                await connection.execute(statement)
        finally:
            await connection.close()

    asyncio.run(work())


def with_admin(
    environ: dict[str, str], work: Callable[[AIOKafkaAdminClient, Settings], Awaitable[Any]]
) -> Any:
    settings = Settings.load(environ)

    async def connected() -> Any:
        async with kafka_admin(settings) as admin:
            return await work(admin, settings)

    return asyncio.run(connected())


def lines(done: subprocess.CompletedProcess[str], level: str) -> list[str]:
    """The lines of `check` on this level, without it."""
    found = [line.split(maxsplit=1) for line in done.stdout.splitlines()]
    assert {word for word, _ in found} <= {"ok", "warn", "FAIL"}
    return [text for word, text in found if word == level]


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# --- init


@pytest.mark.parametrize("keyed", ["false", "true"])
def test_init_creates_what_a_worker_needs_and_check_agrees(
    run: Run, environ: dict[str, str], keyed: str
) -> None:
    app = environ["HEARTBEAT_APP_ID"]
    first = run("init", PARTITIONS="3", SOURCE_KEYED=keyed)
    assert (first.returncode, first.stderr) == (0, "")
    internal = [f"{app}-latest-changelog", f"{app}-last_written_at-changelog"]
    if keyed == "false":
        internal.insert(0, f"{app}-heartbeats-repartition")
    names = [environ["HEARTBEAT_TOPIC"], environ["HEARTBEAT_DEAD_LETTER_TOPIC"], *internal]
    wanted = [f"topic {name}, 3 partitions" for name in names] + [f"table {app}"]
    assert first.stdout.splitlines() == [f"created  {text}" for text in wanted]

    again = run("init", PARTITIONS="7", SOURCE_KEYED=keyed)
    assert again.returncode == 0
    assert again.stdout.splitlines() == [f"exists   {text}" for text in wanted]

    done = run("check", SOURCE_KEYED=keyed)
    assert (done.returncode, done.stderr) == (0, "")
    assert lines(done, "warn") + lines(done, "FAIL") == []
    assert len(lines(done, "ok")) == len(names) + 5


def test_init_gives_the_topics_their_configuration(run: Run, environ: dict[str, str]) -> None:
    assert run("init", REPARTITION_RETENTION_MS="999999999999").returncode == 0

    async def describe(admin: AIOKafkaAdminClient, settings: Settings) -> Any:
        return await describe_topics(admin, [spec.name for spec in all_topics(settings, {})])

    app = environ["HEARTBEAT_APP_ID"]
    topics = with_admin(environ, describe)
    assert topics[f"{app}-heartbeats-repartition"].retention_ms == 999999999999
    assert topics[f"{app}-latest-changelog"].config["cleanup.policy"] == "compact"
    assert topics[environ["HEARTBEAT_DEAD_LETTER_TOPIC"]].retention_ms == -1


def test_the_repartition_topic_keeps_records_as_long_as_a_source_that_exists(
    run: Run, environ: dict[str, str]
) -> None:
    async def create(admin: AIOKafkaAdminClient, settings: Settings) -> None:
        config = {"retention.ms": "999999999999"}
        await ensure_topics(admin, [TopicSpec(settings.topic, 2, 1, config)])

    async def retention(admin: AIOKafkaAdminClient, settings: Settings) -> int | None:
        name = f"{settings.app_id}-heartbeats-repartition"
        return (await describe_topics(admin, [name]))[name].retention_ms

    with_admin(environ, create)
    assert run("init").returncode == 0
    assert with_admin(environ, retention) == 999999999999


def test_two_inits_at_once_do_not_hinder_each_other(environ: dict[str, str]) -> None:
    async def twice(admin: AIOKafkaAdminClient, settings: Settings) -> list[list[str]]:
        specs = all_topics(settings, {})
        return await asyncio.gather(*(ensure_topics(admin, specs) for _ in range(2)))

    one, other = with_admin(environ, twice)
    names = [spec.name for spec in all_topics(Settings.load(environ), {})]
    assert sorted(one + other) == sorted(names)


def test_init_does_not_mend_a_table_but_says_what_is_wrong(
    run: Run, environ: dict[str, str]
) -> None:
    table = environ["HEARTBEAT_TABLE"]
    execute(environ, f"CREATE TABLE {table} (hotel_id smallint, room_id text)")
    done = run("init")
    assert done.returncode == 1
    assert f"exists   table {table}" in done.stdout
    assert any(line.startswith("WRONG ") and "ts_ms" in line for line in done.stdout.splitlines())


@pytest.mark.parametrize("command", ["init", "check"])
def test_without_a_broker(run: Run, command: str) -> None:
    port = closed_port()
    done = run(command, BROKERS=f"127.0.0.1:{port}")
    assert done.returncode == 1
    said = done.stderr if command == "init" else "\n".join(lines(done, "FAIL"))
    assert f"no Kafka broker answers at 127.0.0.1:{port}" in said
    assert "HEARTBEAT_BROKERS" in said
    assert "Traceback" not in done.stdout + done.stderr
    assert done.stderr.count("\n") == (1 if command == "init" else 0)


@pytest.mark.parametrize("command", ["init", "check"])
def test_without_a_database(run: Run, command: str) -> None:
    port = closed_port()
    done = run(command, DATABASE_URL=f"postgresql://u:s3cret@127.0.0.1:{port}/x")
    assert done.returncode == 1
    said = done.stderr if command == "init" else "\n".join(lines(done, "FAIL"))
    assert f"no connection to postgresql://u:***@127.0.0.1:{port}/x" in said
    assert "HEARTBEAT_DATABASE_URL" in said
    assert "s3cret" not in done.stdout + done.stderr
    assert done.stderr.count("\n") == (1 if command == "init" else 0)


# --- check


def test_check_changes_nothing(run: Run, environ: dict[str, str], tmp_path: Path) -> None:
    before = run("check")
    assert before.returncode == 1
    assert not (tmp_path / "data").exists()
    assert run("check").stdout == before.stdout

    async def existing(admin: AIOKafkaAdminClient, settings: Settings) -> Any:
        return await describe_topics(admin, [spec.name for spec in all_topics(settings, {})])

    assert with_admin(environ, existing) == {}


def test_check_finds_the_missing_topic_and_table(run: Run, environ: dict[str, str]) -> None:
    failed = lines(run("check"), "FAIL")
    assert len(failed) == 3
    for name in ("HEARTBEAT_TOPIC", "HEARTBEAT_DEAD_LETTER_TOPIC", "HEARTBEAT_TABLE"):
        assert any(environ[name] in line and "heartbeat-stream init" in line for line in failed)


def test_check_finds_changelogs_that_are_not_partitioned_like_the_source(
    run: Run, environ: dict[str, str]
) -> None:
    app = environ["HEARTBEAT_APP_ID"]

    async def create(admin: AIOKafkaAdminClient, settings: Settings) -> None:
        compact = {"cleanup.policy": "compact"}
        await ensure_topics(
            admin,
            [
                TopicSpec(settings.topic, 3, 1),
                TopicSpec(f"{app}-latest-changelog", 2, 1, compact),
                TopicSpec(f"{app}-last_written_at-changelog", 3, 1, compact),
            ],
        )

    with_admin(environ, create)
    assert run("init", SOURCE_KEYED="true").returncode == 0
    done = run("check", SOURCE_KEYED="true")
    assert done.returncode == 1
    [failed] = lines(done, "FAIL")
    assert failed.startswith(f"topic {app}-latest-changelog has 2 partitions and ")


def test_check_finds_a_wrong_column_and_a_missing_key(run: Run, environ: dict[str, str]) -> None:
    assert run("init").returncode == 0
    table = environ["HEARTBEAT_TABLE"]
    execute(
        environ,
        f"ALTER TABLE {table} DROP CONSTRAINT {table}_pkey",
        f"ALTER TABLE {table} ALTER ts_ms TYPE integer",
    )
    done = run("check")
    assert done.returncode == 1
    failed = lines(done, "FAIL")
    assert len(failed) == 2
    assert any("ts_ms" in line and "bigint" in line for line in failed)
    assert any("primary key" in line for line in failed)


def test_check_finds_a_data_directory_that_is_a_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        done = run("check", DATA_DIR=str(path))
        assert done.returncode == 1
        assert any("HEARTBEAT_DATA_DIR" in line for line in lines(done, "FAIL"))


def test_check_finds_a_data_directory_that_cannot_be_written(run: Run, tmp_path: Path) -> None:
    directory = tmp_path / "read-only"
    directory.mkdir(mode=0o555)
    path = str(directory)
    if os.access(directory, os.W_OK):  # root may write everywhere but in the kernel's own
        path = "/proc/heartbeat"
    done = run("check", DATA_DIR=path)
    assert done.returncode == 1
    assert any(f"{path} cannot be written" in line for line in lines(done, "FAIL"))


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="the kernel lists no locks here")
def test_check_names_the_worker_that_uses_the_data_directory(
    run: Run, environ: dict[str, str]
) -> None:
    assert run("init").returncode == 0
    app = environ["HEARTBEAT_APP_ID"]
    used, free = (Path(environ["HEARTBEAT_DATA_DIR"]) / app / f"worker-{n}" for n in (0, 1))
    for directory in (used, free):
        directory.mkdir(parents=True)
        (directory / "lock").touch()
    with (used / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = run("check")
    assert done.returncode == 0
    [line] = [line for line in lines(done, "ok") if "in use" in line]
    assert str(used) in line
    assert f"process {os.getpid()}" in line
