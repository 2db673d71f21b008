"""The embedded stack: it answers, and whatever ends it, its servers and files go with it."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from heartbeat_stream.local.broker import Broker
from heartbeat_stream.local.postgres import PostgresServer
from heartbeat_stream.local.process import LOOPBACK, ServerError, ServerProcess, children_of
from heartbeat_stream.local.scratch import ScratchDirectory, temporary_parent
from heartbeat_stream.local.stack import EmbeddedStack
from heartbeat_stream.scratch import PREFIX
from tests.support.wait import process_runs, wait_until

READY_SECONDS = 30.0
GONE_SECONDS = 15.0
COMMAND = "import sys; from heartbeat_stream.local.stack import run_stack; sys.exit(run_stack())"
SETTINGS = {
    "HEARTBEAT_BROKERS",
    "HEARTBEAT_DATABASE_URL",
    "HEARTBEAT_DATA_DIR",
    "HEARTBEAT_SESSION_TIMEOUT_MS",
}


class Foreground:
    """The stack as a user runs it, and what it left running and lying."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", COMMAND],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.settings: dict[str, str] = {}
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line == "ready\n":
                break
            name, _, value = line.rstrip("\n").partition("=")
            self.settings[name] = value
        self.directory = Path(self.settings["HEARTBEAT_DATA_DIR"]).parent
        supervisors = children_of(self.process.pid)
        self.servers = [server for pid in supervisors for server in children_of(pid)]
        sessions = [child for server in self.servers for child in children_of(server)]
        self.pids = [*supervisors, *self.servers, *sessions]

    def assert_nothing_left(self) -> None:
        wait_until(
            lambda: not any(process_runs(pid) for pid in self.pids), GONE_SECONDS, what="all ended"
        )
        wait_until(lambda: not self.directory.exists(), GONE_SECONDS, what="files removed")


@contextmanager
def foreground() -> Iterator[Foreground]:
    stack = Foreground()
    try:
        yield stack
    finally:
        stack.process.kill()
        stack.process.communicate()


async def value_of(url: str, statement: str) -> Any:
    connection = await asyncpg.connect(url, timeout=5)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


async def round_trip(bootstrap_servers: str, value: bytes) -> bytes:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
    await admin.start()
    await admin.create_topics([NewTopic("round-trip", num_partitions=1, replication_factor=1)])
    await admin.close()
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap_servers)
    await producer.start()
    await producer.send_and_wait("round-trip", value, key=b"key")
    await producer.stop()
    consumer = AIOKafkaConsumer(
        "round-trip", bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        record = await asyncio.wait_for(consumer.getone(), 10)
        return bytes(record.value)
    finally:
        await consumer.stop()


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_stack_cleanly(signum: signal.Signals) -> None:
    with foreground() as stack:
        assert set(stack.settings) == SETTINGS
        assert len(stack.servers) == 2
        stack.process.send_signal(signum)
        _, errors = stack.process.communicate(timeout=GONE_SECONDS)
        assert (stack.process.returncode, errors) == (0, "")
        stack.assert_nothing_left()


def test_a_killed_stack_leaves_no_process_and_no_file() -> None:
    with foreground() as stack:
        stack.process.kill()
        stack.assert_nothing_left()


def test_a_killed_stack_ends_a_frozen_database_too() -> None:
    with foreground() as stack:
        for pid in stack.pids[2:]:  # servers and sessions, not the supervisors
            os.kill(pid, signal.SIGSTOP)
        stack.process.kill()
        stack.assert_nothing_left()


def test_a_killed_supervisor_takes_its_server_along() -> None:
    with foreground() as stack:
        for supervisor in stack.pids[:2]:
            os.kill(supervisor, signal.SIGKILL)
        wait_until(lambda: not any(process_runs(pid) for pid in stack.servers), GONE_SECONDS)


@pytest.mark.parametrize("index", [0, 1])
def test_a_server_that_dies_ends_the_stack_with_one_line(index: int) -> None:
    with foreground() as stack:
        os.kill(stack.servers[index], signal.SIGKILL)
        _, errors = stack.process.communicate(timeout=GONE_SECONDS)
        assert stack.process.returncode == 1
        assert errors.startswith("heartbeat-stream stack: the ")
        assert " has ended by itself with code 137; " in errors
        assert errors.count("\n") == 1
        stack.assert_nothing_left()


async def test_both_answer_at_the_printed_settings_on_loopback_only() -> None:
    with EmbeddedStack() as stack:
        environment = stack.environment
        assert set(environment) == SETTINGS
        assert (
            await value_of(environment["HEARTBEAT_DATABASE_URL"], "SELECT '大会议室'") == "大会议室"
        )
        assert await round_trip(environment["HEARTBEAT_BROKERS"], b"beat") == b"beat"
        assert stack.failure() is None
        for port in (stack.broker.port, stack.postgres.port):
            with socket.socket() as other, suppress(OSError):
                other.bind(("127.0.0.2", port))  # refused where a server listens on 0.0.0.0
                other.listen()
                continue
            pytest.fail(f"port {port} is taken on other addresses too")
    assert not stack.directory.exists()


async def test_postgres_keeps_its_rows_and_its_address_over_a_restart() -> None:
    with PostgresServer(settings={"max_connections": "7"}) as server:
        await value_of(server.url, "CREATE TABLE t AS SELECT 42 AS answer")
        url, first = server.url, server.pid
        server.restart()
        assert (server.url, server.pid != first) == (url, True)
        await value_of(server.url, "INSERT INTO t VALUES (43)")
        server.restart("immediate")
        assert await value_of(server.url, "SELECT sum(answer) FROM t") == 85
        assert await value_of(server.url, "SELECT current_setting('max_connections')") == "7"
        directory = server.directory
    assert not directory.exists()
    assert not server.running


async def test_a_frozen_postgres_keeps_connections_open_and_silent() -> None:
    with PostgresServer() as server:
        connection = await asyncpg.connect(server.url)
        server.freeze()
        query = asyncio.create_task(connection.fetchval("SELECT 1"))
        done, _ = await asyncio.wait([query], timeout=0.3)
        assert not done
        server.thaw()
        assert await asyncio.wait_for(query, 5) == 1
        await connection.close()
        server.freeze()
        server.stop()  # a frozen one too ends in time
        assert not server.running


def test_a_taken_port_is_named_in_one_line() -> None:
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ServerError, match=f"^port {port} is taken: .*broker.*$"):
            Broker(port=port)
        with pytest.raises(ServerError, match=f"^port {port} is taken: .*database.*$"):
            EmbeddedStack(database_port=port)


def test_a_server_that_does_not_start_is_reported_with_the_end_of_its_log() -> None:
    with (
        pytest.raises(ServerError, match=r"has ended by itself with code 1; .*no_such_setting"),
        PostgresServer(settings={"no_such_setting": "1"}),
    ):
        pass


def test_a_program_that_cannot_be_run_is_reported(tmp_path: Path) -> None:
    process = ServerProcess(
        "nothing",
        [str(tmp_path / "nothing")],
        directory=tmp_path,
        log=tmp_path / "log",
        environment={},
    )
    with pytest.raises(ServerError, match=r"^the nothing could not be started: .*No such file"):
        process.start()
    assert not process.running


def test_what_a_killed_run_left_is_removed_by_the_next_one() -> None:
    abandoned = temporary_parent() / f"{PREFIX}test-abandoned"
    abandoned.mkdir()
    (abandoned / "owner.lock").write_text("1")
    unfinished = temporary_parent() / f"{PREFIX}test-unfinished"
    unfinished.mkdir()  # by another run, which has not come to its lock yet
    with ScratchDirectory("test") as mine, ScratchDirectory("test") as other:
        assert not abandoned.exists()
        assert unfinished.exists()
        assert mine.path.exists()
        assert other.path.exists()
        assert not list(unfinished.iterdir())
    assert not mine.path.exists()
    unfinished.rmdir()
