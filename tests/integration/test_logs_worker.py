"""What a real worker's log says, and what it must never say: few lines while a server is away, no
payloads, no secrets."""

from __future__ import annotations

import base64
import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import asyncpg
import pytest
from yarl import URL

from heartbeat_stream.core.heartbeat import Heartbeat
from heartbeat_stream.local.broker import Broker
from heartbeat_stream.local.fleet import Fleet
from heartbeat_stream.local.postgres import PostgresServer
from heartbeat_stream.local.process import LOOPBACK, free_port, suspend
from tests.support.apache_kafka import ApacheKafka
from tests.support.brokers import on_embedded
from tests.support.oracle import now_ms
from tests.support.worker import Worker
from tests.support.world import Cluster, World, load, running_workers

OUTAGE_S = 20
#: aiokafka alone would write ten a second.
LINES_MAX = 30

ON_BOTH = pytest.mark.parametrize(
    "kind", ["embedded", pytest.param("kafka", marks=pytest.mark.kafka)]
)


# --- servers that may go away


class Brokers:
    """One broker of a kind, which goes away and comes back.

    The embedded one would have forgotten everything when it is started again: it is frozen, and
    thawed.
    """

    def __init__(self, kind: str) -> None:
        self._server: Broker | ApacheKafka = Broker() if kind == "embedded" else ApacheKafka()
        self.kind = kind
        self.secret_port = free_port()

    def start(self) -> None:
        self._server.start()

    def with_password(self, user: str, password: str) -> None:
        """Start it with a second listener, on which clients log in (Apache Kafka)."""
        assert isinstance(self._server, ApacheKafka)
        (node,) = self._server.nodes
        login = (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'user_{user}="{password}";'
        )
        clients = f"CLIENTS://{LOOPBACK}:{self.secret_port}"
        plain = f"PLAINTEXT://{LOOPBACK}:{node.port}"
        controller = f"CONTROLLER://{LOOPBACK}:{node.controller_port}"
        self._server._extra_config.update(
            {
                "listeners": f"{plain},{controller},{clients}",
                "advertised.listeners": f"{plain},{clients}",
                "listener.security.protocol.map": (
                    "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,CLIENTS:SASL_PLAINTEXT"
                ),
                "listener.name.clients.sasl.enabled.mechanisms": "PLAIN",
                "listener.name.clients.plain.sasl.jaas.config": login,
            }
        )
        self._server.start()

    def go_away(self) -> None:
        if isinstance(self._server, ApacheKafka):
            self._server.stop_node()
        else:
            suspend(self._server.pid)

    def come_back(self) -> None:
        if isinstance(self._server, ApacheKafka):
            self._server.start_node()
        else:
            os.kill(self._server.pid, signal.SIGCONT)

    @property
    def cluster(self) -> Cluster:
        servers = self._server.bootstrap_servers
        session_ms = self._server.session_timeout_ms if isinstance(self._server, Broker) else 3_000
        return Cluster(self.kind, servers, session_ms)

    def close(self) -> None:
        self._server.close()


@pytest.fixture
def brokers(kind: str) -> Iterator[Brokers]:
    own = Brokers(kind)
    try:
        yield own
    finally:
        own.close()


@pytest.fixture
def database() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture
def scene(
    brokers: Brokers, database: PostgresServer, tmp_path: Path
) -> Iterator[Callable[[], World]]:
    """Makes the world of a test on these servers, once they run."""
    with running_workers(tmp_path) as workers:
        yield lambda: World(brokers.cluster, database.url, tmp_path, workers)


# --- outages


@asynccontextmanager
async def lines_of(worker: Worker) -> AsyncIterator[list[str]]:
    """The lines that a worker logs during the block, known when it has ended."""
    lines: list[str] = []
    before = len(worker.log_text().splitlines())
    yield lines
    lines += worker.log_text().splitlines()[before:]


def is_event(line: str) -> bool:
    event = json.loads(line)
    return {"time", "level", "logger", "message"} <= set(event) and "\n" not in event["message"]


async def is_away(worker: Worker, figure: str, seconds: float) -> None:
    async def for_long() -> bool:
        return (await worker.metrics()).get(figure, 0) >= seconds

    await worker.until(for_long, seconds + 60, what=f"{figure} >= {seconds}")


@ON_BOTH
@pytest.mark.slow
async def test_few_lines_while_the_broker_is_away(
    brokers: Brokers, scene: Callable[[], World]
) -> None:
    brokers.start()
    world = await scene().prepare(log_format="json", cooldown_ms=1_000)
    worker = await world.start_worker().ready()
    fleet = Fleet(hotels=1, rooms_per_hotel=100)
    async with load(world, fleet, rate=500):
        await worker.until_metric("heartbeat_rows_written_total", 100)
    async with lines_of(worker) as lines:
        brokers.go_away()
        await is_away(worker, "heartbeat_fetch_age_seconds", OUTAGE_S)
    said = "\n".join(lines)
    assert 0 < len(lines) < LINES_MAX, said
    assert all(map(is_event, lines)), said
    assert "Traceback" not in said
    async with lines_of(worker) as lines:
        brokers.come_back()
        await world.send([Heartbeat(9, "back", now_ms())])
        await world.no_lag()
    said = "\n".join(lines)
    assert len(lines) < LINES_MAX, said
    assert all(map(is_event, lines)), said
    assert "Traceback" not in said
    await worker.stopped()


@pytest.mark.parametrize("kind", ["embedded"])
@pytest.mark.slow
async def test_few_lines_while_the_database_is_away(
    brokers: Brokers, database: PostgresServer, scene: Callable[[], World]
) -> None:
    brokers.start()
    world = await scene().prepare(log_format="json", cooldown_ms=500)
    worker = await world.start_worker().ready()
    async with load(world, Fleet(hotels=1, rooms_per_hotel=100), rate=500):
        await worker.until_metric("heartbeat_rows_written_total", 100)
        checkpoints = (await worker.metrics())["heartbeat_checkpoints_total"]
        async with lines_of(worker) as lines:
            database.stop("immediate")
            # One every half second: at least as long as the outage is to last.
            await worker.until_metric(
                "heartbeat_checkpoints_total", checkpoints + 2 * OUTAGE_S, 3 * OUTAGE_S
            )
            database.start()
            await worker.until_metric("heartbeat_database_available", 1)
    said = "\n".join(lines)
    assert 1 < len(lines) < LINES_MAX / 3, said
    assert all(map(is_event, lines)), said
    assert "Traceback" not in said


# --- what a log must not hold

MARK = "MARKED-PAYLOAD"


@on_embedded
async def test_no_payload_above_debug(world: World) -> None:
    await world.prepare(log_format="json")
    async with world.table.connect() as connection:
        await connection.execute(
            f"ALTER TABLE {world.table.table.quoted} ADD CHECK (device_id NOT LIKE '%refuse%')"
        )
    worker = await world.start_worker().ready()
    now = now_ms()
    good = {"hotel_id": 7, "room_id": f"{MARK}-room", "device_id": f"{MARK}-device", "ts_ms": now}
    values = [
        json.dumps(good),
        json.dumps({**good, "room_id": f"{MARK}-refuse", "device_id": f"{MARK}-refuse"}),
        json.dumps({**good, "ts_ms": MARK}),
        json.dumps({**good, "hotel_id": MARK}),
        json.dumps({**good, "status": MARK}),
        f"{MARK} is no JSON",
    ]
    async with world.producer() as producer:
        for value in values:
            await producer.send_and_wait(world.topic, value.encode(), key=MARK.encode())
    await worker.until_metric("heartbeat_rows_refused_total", 1)
    figures = await worker.until_metric("heartbeat_dead_letters_total", 5)
    assert figures["heartbeat_rows_written_total"] == 1
    await worker.stopped()
    assert "MARKED" not in worker.log_text()


USER = "reader"
KAFKA_PASSWORD = "k%fka geheim/4711"
DATABASE_PASSWORD = 'd@ta/base "4712'
WRONG_PASSWORD = "wrong-4713"


def forms(user: str, password: str) -> list[str]:
    """Each form in which a password might stand in a log."""
    plain = f"\0{user}\0{password}".encode()  # what SASL PLAIN sends
    return [
        password,
        quote(password, safe=""),
        quote(password),
        json.dumps(password)[1:-1],
        repr(password)[1:-1],
        base64.b64encode(password.encode()).decode(),
        base64.b64encode(plain).decode(),
        str(plain)[2:-1],
    ]


async def let_nobody_in_without_password(database: PostgresServer) -> str:
    """A role with a password; the URL that it connects with."""
    rules = database.data / "pg_hba.conf"
    text = rules.read_text()
    rules.write_text(f"host all app {LOOPBACK}/32 scram-sha-256\n{text}")
    connection = await asyncpg.connect(database.url)
    try:
        escaped = DATABASE_PASSWORD.replace("'", "''")
        await connection.execute(f"CREATE ROLE app LOGIN SUPERUSER PASSWORD '{escaped}'")
        await connection.execute("SELECT pg_reload_conf()")
    finally:
        await connection.close()
    return str(URL(database.url).with_user("app").with_password(DATABASE_PASSWORD))


@ON_BOTH
@pytest.mark.slow
@pytest.mark.parametrize("level", ["DEBUG", "INFO"])
async def test_no_secret_from_start_to_end(
    brokers: Brokers,
    database: PostgresServer,
    scene: Callable[[], World],
    level: str,
    tmp_path: Path,
) -> None:
    on_kafka = brokers.kind == "kafka"
    if on_kafka:
        brokers.with_password(USER, KAFKA_PASSWORD)
    else:
        brokers.start()
    world = scene()
    url = await let_nobody_in_without_password(database)
    await world.prepare(log_level=level, cooldown_ms=500, database_url=url)
    password_file = tmp_path / "password"
    password_file.write_text(KAFKA_PASSWORD)
    sasl = {
        "kafka_security_protocol": "SASL_PLAINTEXT",
        "kafka_username": USER,
        "kafka_password": KAFKA_PASSWORD,
    }
    if on_kafka:
        world.set(brokers=f"{LOOPBACK}:{brokers.secret_port}")
    workers = []

    # Nobody lets it in, or nobody there understands what it wants.
    wrong = {**sasl, "kafka_password": WRONG_PASSWORD, "startup_timeout_ms": 2_000}
    workers.append(world.start_worker(**wrong))
    assert await workers[-1].ended() == 1

    right = sasl if on_kafka else {}
    workers.append(await world.start_worker(**right).ready())
    worker = workers[-1]
    await world.send([Heartbeat(7, "101", now_ms())])
    await worker.until_metric("heartbeat_rows_written_total", 1)

    # Outages of both.
    database.stop("immediate")
    await world.send([Heartbeat(7, "101", now_ms())])
    await worker.until_metric("heartbeat_write_retries_total", 3)
    database.start()
    await worker.until_metric("heartbeat_rows_written_total", 2)
    brokers.go_away()
    await is_away(worker, "heartbeat_fetch_age_seconds", 5)
    brokers.come_back()
    await world.send([Heartbeat(7, "102", now_ms())])
    await worker.until_metric("heartbeat_rows_written_total", 3, 60)
    await worker.stopped()

    # A database that does not let it in any more, and a password from a file.
    if on_kafka:
        right = {**sasl, "kafka_password": "", "kafka_password_file": str(password_file)}
    wrong_url = str(URL(url).with_password(WRONG_PASSWORD))
    workers.append(await world.start_worker(**right, database_url=wrong_url).ready())
    await world.send([Heartbeat(7, "103", now_ms())])
    await workers[-1].until_metric("heartbeat_write_retries_total", 2)
    assert b"authentication" in (await workers[-1].get("/health/ready"))[1]
    await workers[-1].stopped()

    # A failure.
    (tables,) = world.settings.data_dir.glob("*/worker-0/v1/tables")
    for store in tables.iterdir():
        store.rename(tables.parent / store.name)
        store.write_text("in the way")
    workers.append(world.start_worker(**right))
    assert await workers[-1].ended() == 1

    log = "\n".join(worker.log_text() for worker in workers)
    assert "cannot open the local state" in log
    assert "authentication" in log
    for user, password in (
        (USER, KAFKA_PASSWORD),
        (USER, WRONG_PASSWORD),
        ("app", DATABASE_PASSWORD),
        ("app", WRONG_PASSWORD),
    ):
        for form in forms(user, password):
            assert form not in log, [line for line in log.splitlines() if form in line][:3]
