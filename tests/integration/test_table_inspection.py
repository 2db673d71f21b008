"""What `init` creates and what `check` finds, on a real PostgreSQL.

A statement and a finding are held against each other: a table in which nothing is found must take
every heartbeat.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest

from heartbeat_stream.core.heartbeat import Heartbeat
from heartbeat_stream.local.postgres import PostgresServer
from heartbeat_stream.sinks.postgres import PostgresSettings, PostgresSink
from heartbeat_stream.sinks.table import Table, ddl
from heartbeat_stream.sinks.table_inspection import create_table, inspect_table

TABLE = Table("hotel", "room_status")
EXTREMES = [
    Heartbeat(
        hotel_id=32767, room_id="房" * 255, ts_ms=2**63 - 1, device_id="设" * 255, status=-32768
    ),
    Heartbeat(hotel_id=0, room_id="1", ts_ms=0),
]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as running:
        yield running


@pytest.fixture
async def admin(server: PostgresServer) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(server.url)
    await connection.execute("CREATE SCHEMA hotel")
    yield connection
    await connection.execute("DROP SCHEMA IF EXISTS hotel CASCADE")
    await connection.close()


async def codes(connection: asyncpg.Connection, table: Table = TABLE) -> list[str]:
    problems = await inspect_table(connection, table)
    assert all("\n" not in problem.message for problem in problems)
    return sorted(problem.code for problem in problems)


async def takes_everything(server: PostgresServer) -> bool:
    sink = PostgresSink(PostgresSettings(server.url), TABLE)
    try:
        return await sink.upsert(EXTREMES) == []
    finally:
        await sink.stop(1.0)


async def test_created_once_and_then_right(
    admin: asyncpg.Connection, server: PostgresServer
) -> None:
    assert await codes(admin) == ["no-table"]
    assert await create_table(admin, TABLE)
    assert not await create_table(admin, TABLE)
    assert await codes(admin) == []
    assert await takes_everything(server)


async def test_a_missing_schema_is_created(admin: asyncpg.Connection) -> None:
    await admin.execute("DROP SCHEMA hotel")
    assert await codes(admin) == ["no-table"]
    assert await create_table(admin, TABLE)
    assert await codes(admin) == []


async def test_without_a_schema_the_search_path_decides(admin: asyncpg.Connection) -> None:
    await admin.execute("SET search_path = hotel")
    assert await create_table(admin, Table(None, "room_status"))
    await admin.execute("SET search_path = public")
    assert await codes(admin) == []
    assert await codes(admin, Table(None, "room_status")) == ["no-table"]


async def test_created_by_several_at_once(
    server: PostgresServer, admin: asyncpg.Connection
) -> None:
    await admin.execute("DROP SCHEMA hotel")
    connections = [await asyncpg.connect(server.url) for _ in range(6)]
    await asyncio.gather(*(create_table(connection, TABLE) for connection in connections))
    assert await codes(admin) == []
    for connection in connections:
        await connection.close()


RIGHT = {
    "as in the definition": "SELECT",
    "wider": "ALTER hotel_id TYPE integer, ALTER status TYPE bigint, ALTER device_id TYPE text",
    "varchar room": "ALTER room_id TYPE varchar(255)",
    "varchar without a limit": "ALTER device_id TYPE varchar",
    "another column": "ADD note text, ADD since timestamptz NOT NULL DEFAULT now()",
    "an identity": "ADD id bigint GENERATED ALWAYS AS IDENTITY",
    "a time that must be": "ALTER ts_ms SET NOT NULL",
    "a unique index instead": "DROP CONSTRAINT room_status_pkey, ADD UNIQUE (room_id, hotel_id)",
}


@pytest.mark.parametrize("change", RIGHT.values(), ids=RIGHT)
async def test_tables_that_are_right(
    admin: asyncpg.Connection, server: PostgresServer, change: str
) -> None:
    await admin.execute(ddl(TABLE))
    if change != "SELECT":
        await admin.execute(f"ALTER TABLE {TABLE.quoted} {change}")
    assert await codes(admin) == []
    assert await takes_everything(server)


WRONG = {
    "DROP status": ["no-column"],
    "DROP hotel_id": ["no-column"],
    "ALTER ts_ms TYPE integer": ["wrong-type"],
    "ALTER ts_ms TYPE numeric": ["wrong-type"],
    "ALTER hotel_id TYPE text": ["wrong-type"],
    "ALTER device_id TYPE varchar(100)": ["wrong-type"],
    "ALTER status TYPE bool USING true": ["wrong-type"],
    "DROP CONSTRAINT room_status_pkey": ["no-primary-key"],
    "DROP CONSTRAINT room_status_pkey, ADD PRIMARY KEY (hotel_id)": ["no-primary-key"],
    "DROP CONSTRAINT room_status_pkey, ADD PRIMARY KEY (hotel_id, room_id, ts_ms)": [
        "no-primary-key"
    ],
    "DROP CONSTRAINT room_status_pkey, ADD PRIMARY KEY (hotel_id, room_id) DEFERRABLE": [
        "no-primary-key"
    ],
    "ALTER device_id SET NOT NULL": ["not-null"],
    "ADD floor int NOT NULL": ["extra-column"],
    "DROP status, ADD status smallint GENERATED ALWAYS AS (1) STORED": ["generated"],
}


@pytest.mark.parametrize(("change", "found"), WRONG.items(), ids=WRONG)
async def test_what_is_wrong_is_found(
    admin: asyncpg.Connection, change: str, found: list[str]
) -> None:
    await admin.execute(ddl(TABLE))
    await admin.execute(f"ALTER TABLE {TABLE.quoted} {change}")
    assert await codes(admin) == found


async def test_the_message_says_what_is_and_what_should_be(admin: asyncpg.Connection) -> None:
    await admin.execute(ddl(TABLE))
    await admin.execute(f"ALTER TABLE {TABLE.quoted} ALTER status TYPE bool USING true")
    (problem,) = await inspect_table(admin, TABLE)
    assert problem.message == "column status of hotel.room_status is boolean, should be smallint"


async def test_a_partial_unique_index_is_no_key(admin: asyncpg.Connection) -> None:
    await admin.execute(ddl(TABLE))
    await admin.execute(f"""
        ALTER TABLE {TABLE.quoted} DROP CONSTRAINT room_status_pkey;
        CREATE UNIQUE INDEX ON {TABLE.quoted} (hotel_id, room_id) WHERE hotel_id > 0""")
    assert await codes(admin) == ["no-primary-key"]


async def test_an_included_column_is_no_part_of_the_key(admin: asyncpg.Connection) -> None:
    await admin.execute(ddl(TABLE))
    await admin.execute(f"""
        ALTER TABLE {TABLE.quoted} DROP CONSTRAINT room_status_pkey;
        CREATE UNIQUE INDEX ON {TABLE.quoted} (hotel_id, room_id) INCLUDE (ts_ms)""")
    assert await codes(admin) == []


async def test_a_domain_counts_as_the_type_below_it(admin: asyncpg.Connection) -> None:
    await admin.execute(ddl(TABLE))
    await admin.execute("CREATE DOMAIN hotel.state AS smallint CHECK (VALUE >= 0)")
    await admin.execute(f"ALTER TABLE {TABLE.quoted} ALTER status TYPE hotel.state")
    assert await codes(admin) == []


async def test_partitioned_tables_are_fine(
    admin: asyncpg.Connection, server: PostgresServer
) -> None:
    definition = ddl(TABLE)
    await admin.execute(f"{definition} PARTITION BY HASH (hotel_id)")
    for part in range(2):
        await admin.execute(
            f"CREATE TABLE hotel.part{part} PARTITION OF {TABLE.quoted}"
            f" FOR VALUES WITH (MODULUS 2, REMAINDER {part})"
        )
    assert await codes(admin) == []
    assert await takes_everything(server)


async def test_a_view_is_not_a_table(admin: asyncpg.Connection) -> None:
    await admin.execute(f"CREATE VIEW {TABLE.quoted} AS SELECT 1 AS hotel_id")
    assert await codes(admin) == ["not-a-table"]


async def test_a_collation_that_takes_two_rooms_for_one(admin: asyncpg.Connection) -> None:
    # A real one needs ICU, which the embedded server lacks: a mark in the catalogue has to do.
    await admin.execute(ddl(TABLE))
    await admin.execute(f"""
        CREATE COLLATION hotel.lax (provider = libc, locale = 'C');
        ALTER TABLE {TABLE.quoted} ALTER room_id TYPE text COLLATE hotel.lax;
        UPDATE pg_collation SET collisdeterministic = false WHERE collname = 'lax'""")
    assert await codes(admin) == ["collation"]


async def test_a_database_that_cannot_hold_every_name(
    admin: asyncpg.Connection, server: PostgresServer
) -> None:
    await admin.execute("CREATE DATABASE narrow ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    narrow = await asyncpg.connect(server.url.removesuffix("postgres") + "narrow")
    try:
        await create_table(narrow, TABLE)
        assert await codes(narrow) == ["encoding"]
    finally:
        await narrow.close()
        await admin.execute("DROP DATABASE narrow")


async def test_a_read_only_database(admin: asyncpg.Connection) -> None:
    await admin.execute(ddl(TABLE))
    await admin.execute("SET default_transaction_read_only = on")
    try:
        assert await codes(admin) == ["read-only"]
    finally:
        await admin.execute("SET default_transaction_read_only = off")


async def test_missing_rights(admin: asyncpg.Connection) -> None:
    await admin.execute(ddl(TABLE))
    await admin.execute("CREATE ROLE clerk")
    try:
        await admin.execute("SET ROLE clerk")
        assert await codes(admin) == ["permission"]  # of the schema
        await grant(admin, "USAGE ON SCHEMA hotel")
        assert await codes(admin) == ["permission"] * 5
        await grant(admin, f"INSERT, SELECT ON {TABLE.quoted}")
        assert await codes(admin) == ["permission"] * 3
        # Column by column, and no more than needed: the key is never changed.
        await grant(admin, f"UPDATE (device_id, ts_ms, status) ON {TABLE.quoted}")
        assert await codes(admin) == []
    finally:
        await admin.execute("RESET ROLE; DROP OWNED BY clerk; DROP ROLE clerk")


async def grant(admin: asyncpg.Connection, what: str) -> None:
    await admin.execute(f"RESET ROLE; GRANT {what} TO clerk; SET ROLE clerk")
