"""The sink behind a real PgBouncer in transaction mode, with its documented setting."""

import asyncio
import os
import shutil
import signal
import socket
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from heartbeat_stream.core.heartbeat import Heartbeat
from heartbeat_stream.local.postgres import PostgresServer, unprivileged_uid
from heartbeat_stream.local.process import LOOPBACK, ServerProcess, take_port
from heartbeat_stream.local.scratch import ScratchDirectory
from heartbeat_stream.local.server import LocalServer
from heartbeat_stream.recovery.cleaning import EventCleaning
from heartbeat_stream.recovery.event_groups import Scope
from heartbeat_stream.sinks.postgres import PostgresSettings, PostgresSink, SinkUnavailable, Table
from heartbeat_stream.sinks.table import ddl
from tests.support.stored_events import StoredEvents, row
from tests.support.wait import wait_until_async

pytestmark = [
    pytest.mark.services,
    pytest.mark.skipif(
        shutil.which("pgbouncer", path=os.defpath + ":/usr/sbin") is None
        and os.environ.get("CI") != "true",
        reason="pgbouncer is not installed: `make test-services` installs it",
    ),
]

TABLE = Table(None, "room_status")
TS = 1_700_000_000_000
SERVER_SESSIONS = 2  # fewer than the sinks have connections: they have to share them
FLUSHES = 1_000
EVENT = b'{"type": "track", "distinct_id": "a", "_track_id": 7, "time": 1}'
ROOMS = 40


class PgBouncer(LocalServer):
    """One PgBouncer before one PostgreSQL. options: further lines of its [pgbouncer] section."""

    def __init__(self, server: PostgresServer, *options: str) -> None:
        self.port = take_port(0, "pooler")
        self._scratch = ScratchDirectory("pgbouncer")
        directory = self._scratch.subdirectory("pgbouncer")
        configuration = directory / "pgbouncer.ini"
        configuration.write_text(
            "\n".join(
                [
                    "[databases]",
                    f"postgres = host={LOOPBACK} port={server.port} user=postgres",
                    "[pgbouncer]",
                    f"listen_addr = {LOOPBACK}",
                    f"listen_port = {self.port}",
                    "unix_socket_dir =",
                    "auth_type = any",
                    "pool_mode = transaction",
                    f"default_pool_size = {SERVER_SESSIONS}",
                    "server_login_retry = 1",
                    *options,
                ]
            )
        )
        configuration.chmod(0o644)
        program = shutil.which("pgbouncer", path=os.defpath + ":/usr/sbin") or "pgbouncer"
        self._process = ServerProcess(
            "pgbouncer",
            [program, str(configuration)],
            directory=directory,
            log=directory / "pgbouncer.log",
            environment={},
            uid=unprivileged_uid() if os.geteuid() == 0 else None,
            remove=[self._scratch.path],
        )

    @property
    def url(self) -> str:
        return f"postgresql://postgres@{LOOPBACK}:{self.port}/postgres"

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((LOOPBACK, self.port)) == 0

    def start(self) -> "PgBouncer":
        self._process.start()
        self._process.wait_until_ready(self._answers)
        return self

    def close(self) -> None:
        self._process.stop(signal.SIGQUIT)
        self._scratch.close()


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as running:
        yield running


@pytest.fixture(scope="module")
def pooler(server: PostgresServer) -> Iterator[PgBouncer]:
    with PgBouncer(server) as running:
        yield running


@pytest.fixture
async def admin(server: PostgresServer) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(server.url)
    await connection.execute(ddl(TABLE))
    yield connection
    await connection.execute(f"DROP TABLE {TABLE.quoted}")
    await connection.close()


@asynccontextmanager
async def sink_on(url: str, *, pooler: bool = True, **settings: int) -> AsyncIterator[PostgresSink]:
    sink = PostgresSink(PostgresSettings(url, pooler=pooler, **settings), TABLE)  # type: ignore[arg-type]
    yield sink
    await sink.stop(5.0)


def batch(hotel: int, ts_ms: int) -> list[Heartbeat]:
    return [Heartbeat(hotel_id=hotel, room_id=f"大{room}", ts_ms=ts_ms) for room in range(ROOMS)]


async def server_sessions(admin: asyncpg.Connection) -> int:
    return int(
        await admin.fetchval(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )
    )


async def test_events_are_cleaned_again_and_again(pooler: PgBouncer) -> None:
    """More often than there are sessions at the server, each of which serves several runs."""
    events = StoredEvents(pooler.url)
    events.environment["HEARTBEAT_DATABASE_POOLER"] = "true"
    await events.create()
    for copies in range(3 * SERVER_SESSIONS):
        await events.store([row(EVENT, "shop", TS, (0, copies))])
        scope = Scope(events.table, "shop", TS, TS + 1, 1_000, signup=False)
        cleaning = EventCleaning(events.settings, scope, delete=False, batch=1)
        await cleaning.plan(lambda text: None)
        await cleaning.run(lambda text: None)
        remarks = await events.remarks("shop")
        assert remarks == {place: "du-" if place[1] else None for place in remarks}
        assert len(remarks) == copies + 1


async def test_a_thousand_flushes(pooler: PgBouncer, admin: asyncpg.Connection) -> None:
    """Over eight connections that share two sessions of the server."""
    lanes = 8
    async with sink_on(pooler.url, pool_size=lanes) as sink:

        async def lane(hotel: int) -> None:
            for flush in range(FLUSHES // lanes):
                assert await sink.upsert(batch(hotel, TS + flush)) == []

        await asyncio.gather(*(lane(hotel) for hotel in range(lanes)))
        assert sink.statements == FLUSHES
        assert sink.rows_written == FLUSHES * ROOMS
        assert await server_sessions(admin) == SERVER_SESSIONS
    found = await admin.fetchrow(f"SELECT count(*), min(ts_ms), max(ts_ms) FROM {TABLE.quoted}")
    last = TS + FLUSHES // lanes - 1
    assert tuple(found) == (lanes * ROOMS, last, last)


async def test_guilty_rows_are_refused_and_the_others_land(
    pooler: PgBouncer, admin: asyncpg.Connection
) -> None:
    await admin.execute(f"ALTER TABLE {TABLE.quoted} ADD CHECK (status <> 13)")
    rows = [row for hotel in range(50) for row in batch(hotel, TS)]
    guilty = [3, 700, 701, 1999]
    for index in guilty:
        rows[index].status = 13
    async with sink_on(pooler.url) as sink:
        assert [refused.index for refused in await sink.upsert(rows)] == guilty
    count = await admin.fetchval(f"SELECT count(*) FROM {TABLE.quoted}")
    assert count == len(rows) - len(guilty)


async def test_the_timeout_holds_for_the_sinks_statement_and_for_nobody_elses(
    pooler: PgBouncer, admin: asyncpg.Connection
) -> None:
    async with sink_on(pooler.url, pool_size=1, statement_timeout_ms=300) as sink:
        await sink.upsert(batch(1, TS))
        async with admin.transaction():
            await admin.execute(f"UPDATE {TABLE.quoted} SET status = 1")
            with pytest.raises(SinkUnavailable) as raised:
                await sink.upsert(batch(1, TS + 1))
            assert (raised.value.kind, raised.value.sqlstate) == ("timeout", "57014")
        assert await sink.upsert(batch(1, TS + 1)) == []
    # All sessions of the server that the pooler has, one after the other.
    others = [
        await asyncpg.connect(pooler.url, statement_cache_size=0) for _ in range(SERVER_SESSIONS)
    ]
    for other in others:
        await other.execute("BEGIN")
        assert await other.fetchval("SHOW statement_timeout") == "0"
    for other in others:
        await other.close()


async def test_the_server_behind_the_pooler_restarts(
    pooler: PgBouncer, server: PostgresServer
) -> None:
    connection = await asyncpg.connect(server.url)
    await connection.execute(ddl(TABLE))
    await connection.close()
    async with sink_on(pooler.url, connect_timeout_ms=1_000, statement_timeout_ms=1_000) as sink:
        await sink.upsert(batch(1, TS))
        server.stop()
        with pytest.raises(SinkUnavailable):
            await sink.upsert(batch(1, TS + 1))
        server.start()

        async def written() -> bool:
            try:
                return await sink.upsert(batch(1, TS + 1)) == []
            except SinkUnavailable:
                return False

        await wait_until_async(written, 20.0, what="the sink works again")
    connection = await asyncpg.connect(server.url)
    await connection.execute(f"DROP TABLE {TABLE.quoted}")
    await connection.close()


@pytest.mark.parametrize("options", [(), ("ignore_startup_parameters = statement_timeout",)])
async def test_without_the_setting_the_error_names_it(
    server: PostgresServer, admin: asyncpg.Connection, options: tuple[str, ...]
) -> None:
    with PgBouncer(server, *options) as pooler:
        async with sink_on(pooler.url, pooler=False, pool_size=8) as sink:

            async def write(hotel: int) -> None:
                while True:
                    await sink.upsert(batch(hotel, TS))

            async with asyncio.timeout(20.0):
                with pytest.raises(SinkUnavailable, match="HEARTBEAT_DATABASE_POOLER=true"):
                    await first_error(*(write(hotel) for hotel in range(8)))


async def first_error(*writers: Coroutine[object, object, None]) -> None:
    """Run them together until the first fails; raise its error and end the others."""
    tasks = [asyncio.ensure_future(writer) for writer in writers]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
