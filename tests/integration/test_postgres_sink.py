"""The PostgreSQL sink on a real PostgreSQL: what lands, what is refused, and how it fails.

`pooler` runs a test in both modes; the mode for a pooler must also work without one.
"""

import asyncio
import contextlib
import itertools
import random
import time
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace

import asyncpg
import pytest

from heartbeat_stream.core.heartbeat import Heartbeat
from heartbeat_stream.core.reasons import Reason
from heartbeat_stream.local.postgres import PostgresServer
from heartbeat_stream.sinks import connections
from heartbeat_stream.sinks.postgres import PostgresSettings, PostgresSink, SinkUnavailable, Table
from heartbeat_stream.sinks.postgres_settings import PATIENCE_MS
from heartbeat_stream.sinks.table import ddl
from tests.support.wait import wait_until_async

TS = 1_700_000_000_000
SLACK_SECONDS = 3.0  # for a busy machine, on top of a promised bound

Sinks = Callable[..., PostgresSink]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as running:
        yield running


@contextlib.asynccontextmanager
async def client(url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        connection.terminate()


@pytest.fixture
async def admin(server: PostgresServer) -> AsyncIterator[asyncpg.Connection]:
    """Another client: prepares, looks, and gets in the way."""
    async with client(server.url) as connection:
        yield connection


@pytest.fixture
async def table(server: PostgresServer) -> AsyncIterator[Table]:
    """An empty table that counts the statements sent to it, also those that fail."""
    name = Table(None, "room_status")
    async with client(server.url) as connection:
        await connection.execute(f"""
            {ddl(name)};
            CREATE SEQUENCE statements;
            CREATE FUNCTION count_statement() RETURNS trigger
            LANGUAGE plpgsql SECURITY DEFINER AS $$
            BEGIN PERFORM nextval('statements'); RETURN NULL; END $$;
            CREATE TRIGGER count_statement BEFORE INSERT ON room_status
            FOR EACH STATEMENT EXECUTE FUNCTION count_statement()""")
    yield name
    async with client(server.url) as connection:  # a test may have ended all others
        await connection.execute("""
            SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
            WHERE backend_type = 'client backend' AND pid <> pg_backend_pid();
            DROP TABLE room_status CASCADE; DROP SEQUENCE statements; DROP FUNCTION count_statement
            """)


@pytest.fixture
async def sinks(server: PostgresServer, table: Table) -> AsyncIterator[Sinks]:
    """Makes sinks; ends them after the test."""
    made: list[PostgresSink] = []

    def make(into: Table = table, url: str = server.url, **settings: object) -> PostgresSink:
        sink = PostgresSink(replace(PostgresSettings(url), **settings), into)  # type: ignore[arg-type]
        made.append(sink)
        return sink

    yield make
    server.thaw()
    for sink in made:
        await sink.stop(1.0)


both_modes = pytest.mark.parametrize("pooler", [False, True], ids=["direct", "pooler"])


def heartbeat(
    room: str | int = "101",
    ts_ms: int = TS,
    hotel: int = 7,
    device: str | None = "d",
    status: int | None = 1,
) -> Heartbeat:
    return Heartbeat(
        hotel_id=hotel, room_id=str(room), ts_ms=ts_ms, device_id=device, status=status
    )


async def rows_of(admin: asyncpg.Connection, table: str = "room_status") -> list[Heartbeat]:
    return [
        Heartbeat(**row)
        for row in await admin.fetch(f"SELECT * FROM {table} ORDER BY hotel_id, room_id")
    ]


async def statements_sent(admin: asyncpg.Connection) -> int:
    last, called = await admin.fetchrow("SELECT last_value, is_called FROM statements")
    return int(last) if called else 0


@contextlib.asynccontextmanager
async def locked(admin: asyncpg.Connection, room: str = "101") -> AsyncIterator[None]:
    """Hold the lock of one room's row in a transaction that stays open."""
    transaction = admin.transaction()
    await transaction.start()
    await admin.execute("UPDATE room_status SET status = 9 WHERE room_id = $1", room)
    try:
        yield
    finally:
        await transaction.rollback()


async def sessions(url: str, condition: str = "true") -> list[int]:
    """The process ids of the sinks' sessions, as the server sees them."""
    async with client(url) as connection:
        found = await connection.fetch(
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'heartbeat-stream'"
            f" AND {condition}"
        )
        return [row["pid"] for row in found]


async def waits_for_lock(url: str) -> bool:
    return bool(await sessions(url, "wait_event_type = 'Lock'"))


async def refused_with(sink: PostgresSink, kind: str, *rows: Heartbeat) -> SinkUnavailable:
    """Write, and expect the sink to be unavailable for this reason."""
    with pytest.raises(SinkUnavailable) as raised:
        await sink.upsert(rows or [heartbeat()])
    assert raised.value.kind == kind, str(raised.value)
    return raised.value


async def write_until_it_works(sink: PostgresSink, *rows: Heartbeat) -> None:
    """What a caller does, without the backoff."""

    async def written() -> bool:
        try:
            return await sink.upsert(rows or [heartbeat()]) == []
        except SinkUnavailable:
            return False

    await wait_until_async(written, 20.0, what="the sink works again")


# What lands


@both_modes
async def test_a_row_never_goes_back_in_time(
    sinks: Sinks, admin: asyncpg.Connection, pooler: bool
) -> None:
    sink = sinks(pooler=pooler)
    for ts_ms, device, kept in [
        (TS, "first", "first"),
        (TS + 2, "newer", "newer"),
        (TS + 1, "older", "newer"),
        (TS + 2, "equal", "newer"),
        (TS + 3, "newest", "newest"),
    ]:
        assert await sink.upsert([heartbeat(ts_ms=ts_ms, device=device)]) == []
        assert [row.device_id for row in await rows_of(admin)] == [kept]
    assert (sink.rows_written, sink.rows_turned_away, sink.rows_refused) == (3, 2, 0)


async def test_a_row_that_is_not_newer_is_not_written_again(
    sinks: Sinks, admin: asyncpg.Connection
) -> None:
    sink = sinks()
    await sink.upsert([heartbeat()])
    version = await admin.fetchval("SELECT xmin::text || ctid::text FROM room_status")
    await sink.upsert([heartbeat()])
    await sink.upsert([heartbeat(ts_ms=TS - 1)])
    assert await admin.fetchval("SELECT xmin::text || ctid::text FROM room_status") == version


async def test_a_row_without_a_time_counts_as_older(
    sinks: Sinks, admin: asyncpg.Connection
) -> None:
    await admin.execute("INSERT INTO room_status (hotel_id, room_id) VALUES (7, '101')")
    await sinks().upsert([heartbeat(ts_ms=1)])
    assert await rows_of(admin) == [heartbeat(ts_ms=1)]


async def test_nulls_are_stored_and_replace_values(sinks: Sinks, admin: asyncpg.Connection) -> None:
    sink = sinks()
    await sink.upsert([heartbeat(), heartbeat("102", device=None, status=None)])
    await sink.upsert([heartbeat(ts_ms=TS + 1, device=None, status=None)])
    assert await rows_of(admin) == [
        heartbeat(ts_ms=TS + 1, device=None, status=None),
        heartbeat("102", device=None, status=None),
    ]


async def test_values_are_stored_as_they_are(sinks: Sinks, admin: asyncpg.Connection) -> None:
    names = [
        "大会议室",
        "é",
        "e\u0301",  # the same letter in another normal form: another room
        "a:b",
        " 101 ",
        "101",
        'a"b',
        "a'b",
        "a\\b",
        "a\\u0041",
        "a\tb\nc\rd",
        "{1,2}",
        "[null]",
        "null",
        "\u2028",
        "\x01\x1f\x7f",
        "😀",
        "字" * 255,
    ]
    rows = [heartbeat(name, device=name) for name in names]
    rows += [
        heartbeat("least", hotel=0, status=-32768, ts_ms=0),
        heartbeat("most", hotel=32767, status=32767, ts_ms=2**63 - 1),
    ]
    assert await sinks().upsert(rows) == []
    stored = await rows_of(admin)
    assert sorted(stored, key=repr) == sorted(rows, key=repr)


async def test_ten_thousand_rooms_are_one_statement(
    sinks: Sinks, admin: asyncpg.Connection
) -> None:
    rows = [heartbeat(room) for room in range(10_000)]
    random.shuffle(rows)
    sink = sinks()
    assert await sink.upsert(rows) == []
    assert await admin.fetchval("SELECT count(*) FROM room_status") == 10_000
    assert await statements_sent(admin) == sink.statements == 1
    assert sink.rows_written == 10_000


async def test_no_rows_are_no_statement(sinks: Sinks) -> None:
    # Not even a connection: the port is nobody's.
    assert await sinks(url="postgresql://postgres@127.0.0.1:1/postgres").upsert([]) == []


async def test_of_a_room_given_twice_the_newer_lands(
    sinks: Sinks, admin: asyncpg.Connection
) -> None:
    twice = [heartbeat(ts_ms=TS + 1), heartbeat("102"), heartbeat(ts_ms=TS)]
    assert await sinks().upsert(twice) == []
    assert await rows_of(admin) == [heartbeat(ts_ms=TS + 1), heartbeat("102")]


@both_modes
@pytest.mark.parametrize("name", ['"Odd Schema"."a.b""c"', "hotel-7.zimmer", "schönes.房间"])
async def test_schemas_and_odd_names(
    sinks: Sinks, admin: asyncpg.Connection, name: str, pooler: bool
) -> None:
    odd = Table.parse(name)
    assert odd.schema is not None
    schema = Table(None, odd.schema).quoted
    await admin.execute(f"CREATE SCHEMA {schema}")
    try:
        await admin.execute(ddl(odd))
        assert await sinks(odd, pooler=pooler).upsert([heartbeat()]) == []
        assert await rows_of(admin, odd.quoted) == [heartbeat()]
    finally:
        await admin.execute(f"DROP SCHEMA {schema} CASCADE")


async def test_wider_columns_are_fine(sinks: Sinks, admin: asyncpg.Connection) -> None:
    await admin.execute("""
        ALTER TABLE room_status ALTER hotel_id TYPE bigint, ALTER status TYPE integer,
        ALTER device_id TYPE text, ALTER room_id TYPE varchar(300)""")
    assert await sinks().upsert([heartbeat()]) == []
    assert await rows_of(admin) == [heartbeat()]


async def test_many_batches_at_once_share_the_connections(
    sinks: Sinks, server: PostgresServer, admin: asyncpg.Connection
) -> None:
    sink = sinks(pool_size=2)
    async with asyncio.TaskGroup() as group:
        for hotel in range(12):
            group.create_task(sink.upsert([heartbeat(room, hotel=hotel) for room in range(300)]))
    assert await admin.fetchval("SELECT count(*) FROM room_status") == 3600
    assert len(await sessions(server.url)) == 2


async def test_writers_with_rooms_in_common_do_not_deadlock(
    sinks: Sinks, admin: asyncpg.Connection
) -> None:
    """Two sinks on the same rooms, each time shuffled anew: the order of locks is the server's."""
    times = itertools.count(TS)

    async def write(sink: PostgresSink) -> None:
        for _ in range(25):
            ts_ms = next(times)
            rows = [heartbeat(room, ts_ms) for room in range(400)]
            random.shuffle(rows)
            assert await sink.upsert(rows) == []

    await asyncio.gather(*(write(sinks()) for _ in range(3)))
    assert await admin.fetchval("SELECT min(ts_ms) FROM room_status") == next(times) - 1


# What is refused


POISONED = "ALTER TABLE room_status ADD CONSTRAINT no_thirteen CHECK (status <> 13)"


@both_modes
@pytest.mark.parametrize(
    ("count", "guilty", "most"),
    [
        (5000, [0], 28),
        (5000, [4999], 28),
        (5000, [1234], 28),
        (5000, [17, 18, 2500, 4711], 4 * 28),
        (1, [0], 1),
        (150, list(range(150)), 160),
    ],
    ids=["first", "last", "one", "several", "alone", "all"],
)
async def test_only_the_guilty_are_refused(
    sinks: Sinks,
    admin: asyncpg.Connection,
    pooler: bool,
    count: int,
    guilty: list[int],
    most: int,
) -> None:
    await admin.execute(POISONED)
    rows = [heartbeat(room) for room in range(count)]
    random.Random(count).shuffle(rows)
    for index in guilty:
        rows[index].status = 13
    sink = sinks(pooler=pooler)
    refused = await sink.upsert(rows)
    assert [row.index for row in refused] == guilty
    assert {row.reason for row in refused} == {Reason.ROW_REFUSED}
    assert all(row.detail.startswith("23514 ") and "no_thirteen" in row.detail for row in refused)
    assert all("Failing row" not in row.detail for row in refused)
    good = [row for index, row in enumerate(rows) if index not in guilty]
    assert sorted(await rows_of(admin), key=repr) == sorted(good, key=repr)
    assert await statements_sent(admin) == sink.statements <= most
    assert (sink.rows_written, sink.rows_refused) == (len(good), len(guilty))


async def test_a_refused_row_leaves_the_connection_usable(
    sinks: Sinks, server: PostgresServer, admin: asyncpg.Connection
) -> None:
    await admin.execute(POISONED)
    sink = sinks(pool_size=1)
    await sink.upsert([heartbeat()])
    before = await sessions(server.url)
    assert len(await sink.upsert([heartbeat("102", status=13), heartbeat("103")])) == 1
    assert await sessions(server.url) == before


@both_modes
async def test_a_deferred_constraint_is_judged_at_the_commit(
    sinks: Sinks, admin: asyncpg.Connection, pooler: bool
) -> None:
    await admin.execute("""
        CREATE TABLE hotel (id smallint PRIMARY KEY); INSERT INTO hotel VALUES (7);
        ALTER TABLE room_status ADD FOREIGN KEY (hotel_id) REFERENCES hotel
        DEFERRABLE INITIALLY DEFERRED""")
    try:
        refused = await sinks(pooler=pooler).upsert(
            [heartbeat("101"), heartbeat("102", hotel=8), heartbeat("103")]
        )
        assert [(row.index, row.detail[:5]) for row in refused] == [(1, "23503")]
        assert len(await rows_of(admin)) == 2
    finally:
        await admin.execute("DROP TABLE hotel CASCADE")


async def raise_in_trigger(admin: asyncpg.Connection, statement: str) -> None:
    """Let a trigger raise for room 13, or end that again."""
    await admin.execute(f"""
        CREATE OR REPLACE FUNCTION judge() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN IF NEW.room_id = '13' THEN {statement}; END IF; RETURN NEW; END $$;
        CREATE OR REPLACE TRIGGER judge BEFORE INSERT OR UPDATE ON room_status
        FOR EACH ROW EXECUTE FUNCTION judge()""")


@pytest.mark.parametrize(
    ("statement", "sqlstate"),
    [
        ("RAISE 'not this room'", "P0001"),
        ("RAISE 'not this room' USING ERRCODE = 'HB001'", "HB001"),
        ("RAISE check_violation", "23514"),
        ("PERFORM 1 / 0", "22012"),
    ],
)
async def test_a_trigger_that_judges_a_row(
    sinks: Sinks, admin: asyncpg.Connection, statement: str, sqlstate: str
) -> None:
    await raise_in_trigger(admin, statement)
    refused = await sinks().upsert([heartbeat(room) for room in range(30)])
    assert [(row.index, row.detail[:5]) for row in refused] == [(13, sqlstate)]
    assert len(await rows_of(admin)) == 29


@both_modes
@pytest.mark.parametrize(
    ("sqlstate", "kind"),
    [
        ("53100", "disk-full"),
        ("53200", "out-of-memory"),
        ("40001", "serialization"),
        ("55P03", "lock"),
        ("57P01", "admin-shutdown"),
        ("58030", "io"),
        ("XX000", "internal"),
    ],
)
async def test_a_trigger_that_fails_for_no_fault_of_a_row(
    sinks: Sinks, admin: asyncpg.Connection, sqlstate: str, kind: str, pooler: bool
) -> None:
    await raise_in_trigger(admin, f"RAISE 'no room left' USING ERRCODE = '{sqlstate}'")
    sink = sinks(pooler=pooler)
    rows = [heartbeat(room) for room in range(30)]
    error = await refused_with(sink, kind, *rows)
    assert error.sqlstate == sqlstate
    assert sink.statements == 1  # nothing was narrowed down
    assert await rows_of(admin) == []
    await raise_in_trigger(admin, "NULL")
    assert await sink.upsert(rows) == []
    assert len(await rows_of(admin)) == 30


async def test_going_away_while_narrowing_down_blames_nobody(
    sinks: Sinks, admin: asyncpg.Connection
) -> None:
    await admin.execute(POISONED)
    await raise_in_trigger(
        admin, "IF currval('statements') > 1 THEN RAISE 'full' USING ERRCODE = '53100'; END IF"
    )
    rows = [heartbeat(room) for room in range(30)]
    rows[20].status = 13
    sink = sinks()
    await refused_with(sink, "disk-full", *rows)
    await raise_in_trigger(admin, "NULL")
    assert [row.index for row in await sink.upsert(rows)] == [20]
    assert len(await rows_of(admin)) == 29


# When the database is not there


async def test_deadlock_with_a_writer_in_the_opposite_order(
    sinks: Sinks, admin: asyncpg.Connection, server: PostgresServer
) -> None:
    sink = sinks()
    rows = [heartbeat("1"), heartbeat("2")]
    await sink.upsert(rows)
    newer = [heartbeat(row.room_id, TS + 1) for row in rows]
    await admin.execute("SET deadlock_timeout = '20s'")  # so that the sink finds out, not we
    async with locked(admin, "2"):
        writing = asyncio.create_task(refused_with(sink, "deadlock", *newer))
        await wait_until_async(lambda: waits_for_lock(server.url))
        await admin.execute("UPDATE room_status SET status = 9 WHERE room_id = '1'")
        error = await writing
    assert error.sqlstate == "40P01"
    assert await sink.upsert(newer) == []
    assert await rows_of(admin) == newer


@both_modes
async def test_waiting_for_a_lock_ends_at_the_server(
    sinks: Sinks, admin: asyncpg.Connection, server: PostgresServer, pooler: bool
) -> None:
    sink = sinks(pooler=pooler, statement_timeout_ms=300)
    await sink.upsert([heartbeat()])
    async with locked(admin):
        started = time.monotonic()
        error = await refused_with(sink, "timeout", heartbeat(ts_ms=TS + 1))
        assert 0.3 <= time.monotonic() - started < 0.3 + SLACK_SECONDS
        assert error.sqlstate == "57014"  # the server itself gave up, so it holds nothing
        assert not await waits_for_lock(server.url)
    assert await sink.upsert([heartbeat(ts_ms=TS + 1)]) == []


@both_modes
async def test_a_frozen_server_ends_within_the_bound_and_is_used_again(
    sinks: Sinks, server: PostgresServer, pooler: bool
) -> None:
    sink = sinks(pooler=pooler, statement_timeout_ms=300, connect_timeout_ms=400)
    await sink.upsert([heartbeat()])
    (before,) = await sessions(server.url)
    tasks = asyncio.all_tasks()
    server.freeze()
    try:
        for bound in [0.3 + PATIENCE_MS / 1000, 0.4]:  # first the statement, then a connection
            started = time.monotonic()
            error = await refused_with(sink, "timeout", heartbeat(ts_ms=TS + 1))
            assert error.sqlstate is None
            assert bound <= time.monotonic() - started < bound + SLACK_SECONDS
        # Nobody is left who tries to cancel something at a server that does not answer.
        await wait_until_async(lambda: asyncio.all_tasks() == tasks, 2.0)
    finally:
        server.thaw()
    await write_until_it_works(sink, heartbeat(ts_ms=TS + 2))
    (after,) = await sessions(server.url, "state = 'idle'")
    assert after != before


@contextlib.asynccontextmanager
async def slow_way(server: PostgresServer, seconds: float) -> AsyncIterator[str]:
    """A way to the server on which each answer takes so long; its URL."""
    pumps: set[asyncio.Task[None]] = set()

    async def pump(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float
    ) -> None:
        while chunk := await reader.read(65536):
            await asyncio.sleep(delay)
            writer.write(chunk)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", server.port)
        pumps.add(asyncio.create_task(pump(reader, server_writer, 0)))
        pumps.add(asyncio.create_task(pump(server_reader, writer, seconds)))

    proxy = await asyncio.start_server(serve, "127.0.0.1")
    port = proxy.sockets[0].getsockname()[1]
    try:
        yield f"postgresql://postgres@127.0.0.1:{port}/postgres?sslmode=disable"
    finally:
        proxy.close()
        for task in pumps:
            task.cancel()


async def test_the_bound_is_one_for_all_round_trips_of_a_batch(
    sinks: Sinks, server: PostgresServer
) -> None:
    """Each answer comes in time, but not all of them together."""
    bound = 0.1 + PATIENCE_MS / 1000
    async with slow_way(server, 0.4 * bound) as url:
        error = await refused_with(sinks(url=url, pooler=True, statement_timeout_ms=100), "timeout")
        assert error.sqlstate is None


async def test_stopping_while_frozen_is_bounded(sinks: Sinks, server: PostgresServer) -> None:
    sink = sinks()
    await asyncio.gather(*(sink.upsert([heartbeat(room)]) for room in range(3)))
    server.freeze()
    try:
        writing = asyncio.create_task(sink.upsert([heartbeat(ts_ms=TS + 1)]))
        await asyncio.sleep(0)
        started = time.monotonic()
        await sink.stop(0.3)
        assert time.monotonic() - started < 0.3 + SLACK_SECONDS
        with pytest.raises(SinkUnavailable):
            await asyncio.wait_for(writing, SLACK_SECONDS)
        # At once, without asking the server.
        await asyncio.wait_for(refused_with(sink, "stopped"), SLACK_SECONDS)
    finally:
        server.thaw()


async def test_stopping_waits_for_what_is_in_flight(
    sinks: Sinks, admin: asyncpg.Connection, server: PostgresServer
) -> None:
    sink = sinks()
    await sink.upsert([heartbeat()])
    async with locked(admin):
        writing = asyncio.create_task(sink.upsert([heartbeat(ts_ms=TS + 1)]))
        await wait_until_async(lambda: waits_for_lock(server.url))
        stopping = asyncio.create_task(sink.stop(30.0))
        await asyncio.sleep(0)
        await refused_with(sink, "stopped")
        assert not stopping.done()
    await asyncio.wait_for(stopping, 10.0)
    assert await writing == []
    assert [row.ts_ms for row in await rows_of(admin)] == [TS + 1]
    await wait_until_async(lambda: no_sessions(server.url))
    await sink.stop(1.0)  # twice is fine


async def no_sessions(url: str) -> bool:
    return not await sessions(url)


async def test_a_cancelled_write_leaves_the_sink_usable(
    sinks: Sinks, admin: asyncpg.Connection, server: PostgresServer
) -> None:
    sink = sinks(pool_size=1)
    await sink.upsert([heartbeat()])
    async with locked(admin):
        writing = asyncio.create_task(sink.upsert([heartbeat(ts_ms=TS + 1)]))
        await wait_until_async(lambda: waits_for_lock(server.url))
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(writing, 5.0)
        assert await sink.upsert([heartbeat("102")]) == []


async def test_read_only_and_back(
    sinks: Sinks, admin: asyncpg.Connection, server: PostgresServer
) -> None:
    sink = sinks(pool_size=2)
    await asyncio.gather(sink.upsert([heartbeat()]), sink.upsert([heartbeat("102")]))
    assert len(await sessions(server.url)) == 2
    await admin.execute("ALTER SYSTEM SET default_transaction_read_only = on")
    try:
        await admin.execute("SELECT pg_reload_conf()")
        await wait_until_async(lambda: is_read_only(server.url))
        error = await refused_with(sink, "read-only", heartbeat(ts_ms=TS + 1))
        assert error.sqlstate == "25006"
        # The connections may all lead to a demoted primary: new ones ask for the way again.
        await wait_until_async(lambda: no_sessions(server.url))
    finally:
        await admin.execute("ALTER SYSTEM RESET default_transaction_read_only")
        await admin.execute("SELECT pg_reload_conf()")
    await write_until_it_works(sink, heartbeat(ts_ms=TS + 1))


async def test_a_connection_idle_for_long_is_not_used_again(
    sinks: Sinks, server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = sinks()
    await sink.upsert([heartbeat()])
    before = await sessions(server.url)
    await sink.upsert([heartbeat(ts_ms=TS + 1)])
    assert await sessions(server.url) == before
    monkeypatch.setattr(connections, "IDLE_SECONDS_MAX", 0.0)
    await sink.upsert([heartbeat(ts_ms=TS + 2)])
    await wait_until_async(lambda: all_new(server.url, before))


async def all_new(url: str, before: list[int]) -> bool:
    now = await sessions(url)
    return bool(now) and not set(now) & set(before)


async def is_read_only(url: str) -> bool:
    async with client(url) as connection:
        return bool(await connection.fetchval("SHOW default_transaction_read_only") == "on")


async def terminate_sessions(admin: asyncpg.Connection) -> None:
    await admin.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
        " WHERE application_name = 'heartbeat-stream'"
    )


async def test_a_session_terminated_in_the_middle(
    sinks: Sinks, admin: asyncpg.Connection, server: PostgresServer
) -> None:
    sink = sinks()
    await sink.upsert([heartbeat()])
    async with locked(admin):
        writing = asyncio.create_task(refused_with(sink, "admin-shutdown", heartbeat(ts_ms=TS + 1)))
        await wait_until_async(lambda: waits_for_lock(server.url))
        await terminate_sessions(admin)
        await writing
    assert await sink.upsert([heartbeat(ts_ms=TS + 1)]) == []


async def test_idle_sessions_terminated_again_and_again(
    sinks: Sinks, admin: asyncpg.Connection
) -> None:
    sink = sinks()
    for ts_ms in range(TS, TS + 5):
        await write_until_it_works(sink, heartbeat(ts_ms=ts_ms))
        await terminate_sessions(admin)
    assert [row.ts_ms for row in await rows_of(admin)] == [TS + 4]


async def test_restart_of_the_server(sinks: Sinks, server: PostgresServer) -> None:
    sink = sinks()
    await sink.upsert([heartbeat()])
    server.stop()
    try:
        await refused_with(sink, "admin-shutdown")  # the server's last words, unread so far
        await refused_with(sink, "connection")
        away = sinks()
        await asyncio.wait_for(away.start(), 0.5)  # a worker starts without its database
        await refused_with(away, "connection")
    finally:
        server.start()
    await write_until_it_works(sink, heartbeat(ts_ms=TS + 1))
    await write_until_it_works(away, heartbeat(ts_ms=TS + 2))


async def test_a_crash_of_the_server(sinks: Sinks, server: PostgresServer) -> None:
    sink = sinks()
    await sink.upsert([heartbeat()])
    server.restart("immediate")
    await write_until_it_works(sink, heartbeat(ts_ms=TS + 1))


# What an operator has to mend


async def test_a_missing_table_is_awaited(
    sinks: Sinks, admin: asyncpg.Connection, table: Table
) -> None:
    sink = sinks()
    await sink.upsert([heartbeat()])
    await admin.execute("ALTER TABLE room_status RENAME TO elsewhere")
    error = await refused_with(sink, "undefined-table", heartbeat(ts_ms=TS + 1))
    assert error.operator
    assert error.sqlstate == "42P01"
    await admin.execute("ALTER TABLE elsewhere RENAME TO room_status")
    assert await sink.upsert([heartbeat(ts_ms=TS + 1)]) == []


@pytest.mark.parametrize(
    ("change", "kind", "sqlstate"),
    [
        ("ALTER TABLE room_status DROP COLUMN status", "undefined-column", "42703"),
        ("ALTER TABLE room_status DROP CONSTRAINT room_status_pkey", "table", "42P10"),
        ("ALTER TABLE room_status ALTER status TYPE bool USING true", "table", "42804"),
    ],
)
async def test_a_table_of_another_shape(
    sinks: Sinks, admin: asyncpg.Connection, change: str, kind: str, sqlstate: str
) -> None:
    await admin.execute(change)
    error = await refused_with(sinks(), kind)
    assert error.operator
    assert error.sqlstate == sqlstate


@pytest.fixture
async def role(admin: asyncpg.Connection, server: PostgresServer) -> AsyncIterator[str]:
    """The URL of a user without rights, who has to show a password."""
    rules = server.data / "pg_hba.conf"
    before = rules.read_text()
    rules.write_text("host all clerk 127.0.0.1/32 scram-sha-256\n" + before)
    await admin.execute("CREATE ROLE clerk LOGIN PASSWORD 'hunter2'")
    await admin.execute("SELECT pg_reload_conf()")
    url = server.url.replace("postgres@", "clerk:hunter2@")

    async def reloaded() -> bool:
        with contextlib.suppress(asyncpg.InvalidPasswordError):
            async with client(url.replace("hunter2", "x")):
                return False
        return True

    await wait_until_async(reloaded)
    yield url
    rules.write_text(before)
    await admin.execute("SELECT pg_reload_conf()")
    await admin.execute("DROP OWNED BY clerk CASCADE")
    await admin.execute("DROP ROLE clerk")


async def test_least_privilege(sinks: Sinks, admin: asyncpg.Connection, role: str) -> None:
    sink = sinks(url=role)
    for privilege in ("INSERT", "UPDATE", "SELECT"):
        error = await refused_with(sink, "permission")
        assert error.operator
        await admin.execute(f"GRANT {privilege} ON room_status TO clerk")
    assert await sink.upsert([heartbeat()]) == []


async def test_too_many_connections(sinks: Sinks, admin: asyncpg.Connection, role: str) -> None:
    await admin.execute("ALTER ROLE clerk CONNECTION LIMIT 0")
    error = await refused_with(sinks(url=role), "too-many-connections")
    assert not error.operator


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (("hunter2", "hunter2x"), "authentication"),
        (("/postgres", "/hunter"), "undefined-database"),
        (("127.0.0.1", "localhost.invalid"), "connection"),
        (("/postgres", "/postgres?sslmode=require"), "connection"),
        (("/postgres", "/postgres?sslmode=hunter"), "configuration"),
        (("/postgres", "/postgres?target_session_attrs=standby"), "read-only"),
    ],
    ids=lambda value: value if isinstance(value, str) else value[1],
)
async def test_the_password_is_nowhere_in_an_error(
    sinks: Sinks, role: str, change: tuple[str, str], kind: str
) -> None:
    url = role.replace(*change)
    error = await refused_with(sinks(url=url), kind)
    told = "".join(traceback.format_exception(error)) + repr(error)
    assert "hunter2" not in told
    assert "\n" not in str(error)
