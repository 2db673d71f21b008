"""Create the target table, or say what is wrong with an existing one, for `init` and `check`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import asyncpg

from heartbeat_stream.sinks.creating import creating
from heartbeat_stream.sinks.message_table import append_sql, append_text_sql
from heartbeat_stream.sinks.table import COLUMNS, KEY, Table, ddl, quote

NO_SCHEMA = (
    "this login lacks USAGE on every schema of its search_path: give it the GRANTs of "
    "docs/security.md, or name the schema in HEARTBEAT_TABLE"
)


class Problem(NamedTuple):
    """Something that keeps the sink from writing this table, or some rows into it."""

    code: str  # a short word of a bounded list
    message: str  # one line that says what is wrong and what would be right


async def create_table(
    connection: asyncpg.Connection, table: Table, define: Callable[[Table], str] = ddl
) -> bool:
    """Create the table, and its schema, where missing; tell whether anything was created.

    Safe to repeat and to run twice at once. An existing table is left as it is, right or wrong.
    Raises asyncpg.PostgresError, as where the user may not create it.
    """
    if await _find(connection, table) is not None:
        return False
    async with creating(connection):
        if await _find(connection, table) is not None:
            return False
        if table.schema:
            await connection.execute(_schema_ddl(table.schema))
        await connection.execute(define(table))
    return True


def why_not_created(error: asyncpg.PostgresError) -> str:
    """What kept `create_table` from its work, in one line."""
    if isinstance(error, asyncpg.InvalidSchemaNameError):
        return NO_SCHEMA
    return " ".join(str(error.args[0] if error.args else error).split())


async def _usable_schemas(connection: asyncpg.Connection) -> list[str]:
    schemas: list[str] = await connection.fetchval("SELECT current_schemas(false)::text[]")
    return schemas


def _schema_ddl(schema: str) -> str:
    # Not CREATE SCHEMA IF NOT EXISTS alone: that asks for the right to create one even if it is
    # there already.
    literal = "'" + schema.replace("'", "''") + "'"
    return f"""\
DO $do$ BEGIN
  IF NOT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = {literal}) THEN
    CREATE SCHEMA IF NOT EXISTS {quote(schema)};
  END IF;
END $do$"""


async def inspect_table(connection: asyncpg.Connection, table: Table) -> list[Problem]:
    """Answer what is wrong with the table; an empty list means that a worker can write it.

    Wider columns than the definition's are fine (an integer for a smallint, text for a varchar):
    they hold every value. Narrower or different ones are not. Changes nothing in the database.
    Raises asyncpg.PostgresError and OSError where the database cannot be asked.
    """
    try:
        found = await _find(connection, table)
    except asyncpg.InsufficientPrivilegeError as error:
        return [Problem("permission", f"no access to the schema of {table}: {error.args[0]}")]
    if found is None and table.schema is None and not await _usable_schemas(connection):
        return [Problem("permission", f"{NO_SCHEMA}, so {table} cannot be seen")]
    if found is None:
        return [
            Problem("no-table", f"table {table} does not exist: run `heartbeat-stream init`"),
            *await _server_problems(connection),
        ]
    oid, kind = found
    if kind not in WRITABLE_KINDS:
        return [Problem("not-a-table", f"{table} is a {KINDS.get(kind, kind)}, not a table")]
    columns = {row["name"]: Column(**row) for row in await connection.fetch(COLUMNS_QUERY, oid)}
    problems = await _server_problems(connection)
    for name in COLUMNS:
        problems += _column_problems(table, name, columns.get(name))
    problems += [
        Problem(
            "extra-column",
            f"column {column.name} of {table} is NOT NULL without a default, and a worker does "
            "not write it: give it a default",
        )
        for column in columns.values()
        if column.name not in COLUMNS and column.required and not column.filled
    ]
    if set(KEY) <= columns.keys() and not await connection.fetchval(KEY_QUERY, oid, list(KEY)):
        problems.append(
            Problem(
                "no-primary-key",
                f"{table} has no primary key (hotel_id, room_id): "
                f"ALTER TABLE {table.quoted} ADD PRIMARY KEY (hotel_id, room_id)",
            )
        )
    return problems


@dataclass(frozen=True, slots=True)
class Column:
    """A column as the catalogue describes it."""

    name: str
    type: str  # as in "character varying(255)"; of a domain, the type below it
    required: bool  # NOT NULL
    filled: bool  # has a default or makes its own values
    generated: bool  # cannot be written
    deterministic: bool  # its collation tells any two texts apart
    may_select: bool
    may_insert: bool
    may_update: bool


def _column_problems(table: Table, name: str, column: Column | None) -> list[Problem]:
    wanted = COLUMNS[name]
    if column is None:
        return [Problem("no-column", f"{table} has no column {name}: it should be a {wanted}")]
    problems = []
    if not holds(column.type, wanted):
        problems.append(
            Problem("wrong-type", f"column {name} of {table} is {column.type}, should be {wanted}")
        )
    if column.generated:
        problems.append(
            Problem("generated", f"column {name} of {table} is generated and cannot be written")
        )
    if not column.deterministic:
        problems.append(
            Problem(
                "collation",
                f"the collation of {name} in {table} takes different names for one (it is "
                "nondeterministic): rooms would share a row",
            )
        )
    if column.required and name not in (*KEY, "ts_ms"):
        problems.append(
            Problem(
                "not-null",
                f"column {name} of {table} is NOT NULL, but a heartbeat may come without it: "
                f"ALTER TABLE {table.quoted} ALTER COLUMN {name} DROP NOT NULL",
            )
        )
    needed = {"SELECT": column.may_select, "INSERT": column.may_insert}
    if name not in KEY:
        needed["UPDATE"] = column.may_update
    missing = [privilege for privilege, granted in needed.items() if not granted]
    if missing:
        problems.append(
            Problem(
                "permission",
                f"the user may not {' or '.join(missing)} column {name} of {table}: "
                f"GRANT SELECT, INSERT, UPDATE ON {table.quoted} TO ...",
            )
        )
    return problems


_INTEGERS = ("smallint", "integer", "bigint")
_VARCHAR = re.compile(r"character varying(?:\((\d+)\))?")


def holds(actual: str, wanted: str) -> bool:
    """Tell whether a column of type ``actual`` holds every value of type ``wanted``.

    >>> holds("integer", "smallint"), holds("smallint", "bigint")
    (True, False)
    >>> holds("text", "character varying(255)"), holds("character varying(100)", "text")
    (True, False)
    """
    if wanted in _INTEGERS:
        return actual in _INTEGERS[_INTEGERS.index(wanted) :]
    # Of a room id, too, there are never more than 255 characters.
    length = _VARCHAR.fullmatch(actual)
    return actual == "text" or bool(length and int(length[1] or 255) >= 255)


async def _find(connection: asyncpg.Connection, table: Table) -> tuple[int, str] | None:
    row = await connection.fetchrow(
        "SELECT oid::int8, relkind::text FROM pg_catalog.pg_class"
        " WHERE oid = pg_catalog.to_regclass($1)",
        table.quoted,
    )
    return (row[0], row[1]) if row else None


async def _server_problems(connection: asyncpg.Connection) -> list[Problem]:
    encoding, read_only = await connection.fetchrow(
        "SELECT current_setting('server_encoding'),"
        " pg_catalog.pg_is_in_recovery() OR current_setting('transaction_read_only')::bool"
    )
    problems = []
    if encoding != "UTF8":
        problems.append(
            Problem(
                "encoding",
                f"the database's encoding is {encoding}, which cannot hold every room's name: "
                "use a database with ENCODING 'UTF8'",
            )
        )
    if read_only:
        problems.append(
            Problem("read-only", "the database is read-only (a standby?): connect to the primary")
        )
    return problems


KINDS = {
    "v": "view",
    "m": "materialized view",
    "f": "foreign table",
    "S": "sequence",
    "i": "index",
    "c": "composite type",
}
WRITABLE_KINDS = ("r", "p")  # a plain or a partitioned table

COLUMNS_QUERY = """\
SELECT a.attname::text AS name,
       CASE WHEN t.typtype = 'd' THEN pg_catalog.format_type(t.typbasetype, t.typtypmod)
            ELSE pg_catalog.format_type(a.atttypid, a.atttypmod) END AS type,
       a.attnotnull AS required,
       a.atthasdef OR a.attidentity <> '' AS filled,
       a.attgenerated <> '' AS generated,
       coalesce(l.collisdeterministic, true) AS deterministic,
       has_column_privilege(a.attrelid, a.attnum, 'SELECT') AS may_select,
       has_column_privilege(a.attrelid, a.attnum, 'INSERT') AS may_insert,
       has_column_privilege(a.attrelid, a.attnum, 'UPDATE') AS may_update
FROM pg_catalog.pg_attribute AS a
JOIN pg_catalog.pg_type AS t ON t.oid = a.atttypid
LEFT JOIN pg_catalog.pg_collation AS l ON l.oid = a.attcollation
WHERE a.attrelid = $1::int8::oid AND a.attnum > 0 AND NOT a.attisdropped"""

# A unique index that ON CONFLICT (hotel_id, room_id) can use: exactly these columns, all rows,
# checked at once.
KEY_QUERY = """\
SELECT EXISTS (
  SELECT FROM pg_catalog.pg_index AS i
  WHERE i.indrelid = $1::int8::oid AND i.indisunique AND i.indimmediate AND i.indisvalid
    AND i.indpred IS NULL AND i.indexprs IS NULL
    AND (SELECT array_agg(a.attname::text ORDER BY a.attname)
         FROM unnest(i.indkey[0:i.indnkeyatts - 1]) AS k
         JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k)
        = (SELECT array_agg(name ORDER BY name) FROM unnest($2::text[]) AS name)
)"""


async def inspect_message_table(connection: asyncpg.Connection, table: Table) -> str | None:
    """What is wrong with a table that JSON messages are to be appended to; None if nothing is.

    Raises what the connection raises.
    """
    return await _why_it_takes_none(connection, table, append_sql(table), "HEARTBEAT_MARKET_TABLE")


async def inspect_text_table(connection: asyncpg.Connection, table: Table) -> str | None:
    """The same for texts."""
    sql = append_text_sql(table)
    return await _why_it_takes_none(connection, table, sql, "HEARTBEAT_MESSAGES_TABLE")


async def _why_it_takes_none(
    connection: asyncpg.Connection, table: Table, sql: str, variable: str
) -> str | None:
    try:
        await connection.execute("BEGIN; SET TRANSACTION READ WRITE")
        await connection.execute(sql.replace("$1", "'[]'"))
    except asyncpg.PostgresError as error:
        return (
            f"table {table} takes no messages ({error}): create it with `heartbeat-stream init`, "
            f"or set {variable}"
        )
    finally:
        await connection.execute("ROLLBACK")
    return None
