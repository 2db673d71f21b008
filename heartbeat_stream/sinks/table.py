"""The target table: its name, its definition, and what may be wrong with an existing one."""

from __future__ import annotations

import re
from typing import NamedTuple

NAME_BYTES_MAX = 63  # NAMEDATALEN - 1: PostgreSQL would cut a longer name without an error

# The columns in the definition's order, by the server's own names for their types.
COLUMNS = {
    "hotel_id": "smallint",
    "room_id": "text",
    "device_id": "character varying(255)",
    "ts_ms": "bigint",
    "status": "smallint",
}
KEY = ("hotel_id", "room_id")

_PART = re.compile(r'"(?:[^"]|"")+"|[^".]+')


class Table(NamedTuple):
    """A table's name. Without a schema the connection's ``search_path`` decides."""

    schema: str | None
    name: str

    @classmethod
    def parse(cls, text: str) -> Table:
        """Read ``table`` or ``schema.table``, as psql reads them.

        ASCII letters outside double quotes become lower case, as in SQL; a part in double quotes
        is kept as it is and may hold dots and (doubled) quotes. Raises ValueError.
        """
        parts = _PART.findall(text)
        if ".".join(parts) != text or not 1 <= len(parts) <= 2:
            raise ValueError(
                f'{text!r} is not a table name: expected table or schema.table, with "..." around '
                "a part that holds dots or quotes"
            )
        names = [_unquoted(part) for part in parts]
        for name in names:
            if len(name.encode()) > NAME_BYTES_MAX:
                raise ValueError(f"{name!r} is too long for a name: {NAME_BYTES_MAX} bytes at most")
            if "\0" in name:
                raise ValueError(f"{name!r} holds a NUL, which PostgreSQL cannot store")
        return cls(names[0] if len(names) == 2 else None, names[-1])

    @property
    def quoted(self) -> str:
        """The name as SQL takes it, whatever it holds."""
        return ".".join(quote(part) for part in self if part is not None)

    def __str__(self) -> str:
        return ".".join(
            part if _PLAIN.fullmatch(part) else quote(part) for part in self if part is not None
        )


_PLAIN = re.compile(r"[a-z_][a-z0-9_$]*")


def quote(name: str) -> str:
    """Quote an identifier for SQL."""
    return '"' + name.replace('"', '""') + '"'


def _unquoted(part: str) -> str:
    if part.startswith('"'):
        return part[1:-1].replace('""', '"')
    return "".join(letter.lower() if letter.isascii() else letter for letter in part)


def ddl(table: Table) -> str:
    """Give the statement that creates the table if it is missing."""
    return f"""\
CREATE TABLE IF NOT EXISTS {table.quoted} (
  hotel_id SMALLINT, room_id TEXT, device_id VARCHAR(255), ts_ms BIGINT, status SMALLINT,
  PRIMARY KEY (hotel_id, room_id)
)"""


def upsert_sql(table: Table) -> str:
    """Give the statement that writes a batch, whatever its size.

    Its one parameter is a JSON array with an array ``[hotel_id, room_id, device_id, ts_ms,
    status]`` for each row. The guard makes it safe to repeat, and safe against other writers and
    old backlogs: a row never goes back in ``ts_ms``, and one with an equal ``ts_ms`` is not
    written again.

    JSON, because it was measured (``python -m heartbeat_stream.bench.upsert``): as fast at the
    server as COPY into a temporary table, for a quarter of the encoding time that ``unnest`` over
    five arrays costs the event loop. And it needs no session state, so it works behind a pooler.

    ORDER BY, because all writers must lock rows in one order: otherwise two of them with rooms in
    common (a zombie and its successor, a replay) could wait for each other in a circle. Collation
    C is the fastest, and is the same for every writer. The server sorts 5,000 rows in half of the
    time that Python needs, and without holding up an event loop.
    """
    return f"""\
INSERT INTO {table.quoted} AS current (hotel_id, room_id, device_id, ts_ms, status)
SELECT (r->>0)::int2, r->>1, r->>2, (r->>3)::int8, (r->>4)::int2
FROM jsonb_array_elements($1::jsonb) AS r
ORDER BY 1, (r->>1) COLLATE "C"
ON CONFLICT (hotel_id, room_id) DO UPDATE
SET device_id = excluded.device_id, ts_ms = excluded.ts_ms, status = excluded.status
WHERE current.ts_ms IS NULL OR excluded.ts_ms > current.ts_ms"""


def exists_sql(table: Table) -> str:
    """Give the statement that tells whether there is a row of the hotel ``$1``, room ``$2``."""
    return f"SELECT EXISTS (SELECT FROM {table.quoted} WHERE hotel_id = $1 AND room_id = $2)"


def delete_sql(table: Table) -> str:
    """Give the statement that deletes the row of the hotel ``$1`` and the room ``$2``."""
    return f"DELETE FROM {table.quoted} WHERE hotel_id = $1 AND room_id = $2"
