"""The table beside what it must hold: of each room the newest heartbeat, or an older one yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import asyncpg

from heartbeat_stream.core.heartbeat import Heartbeat, room_key
from heartbeat_stream.sinks.table import Table

__all__ = ["Comparison", "compare", "fetch_rows", "sample"]

Rows = Mapping[bytes, Heartbeat]


@dataclass
class Comparison:
    """How many rooms have their newest heartbeat in the table, and how many an older one or none.

    The latter must be pending in the worker. ``wrong`` has a line for each row that can be
    right in no case.
    """

    equal: int = 0
    behind: int = 0
    wrong: list[str] = field(default_factory=list)

    @property
    def rooms(self) -> int:
        return self.equal + self.behind + len(self.wrong)


def compare(rows: Rows, newest: Rows) -> Comparison:
    """Compare the table with the newest heartbeat of each room, both by the room's key."""
    found = Comparison()
    for key, heartbeat in newest.items():
        row = rows.get(key)
        if row == heartbeat:
            found.equal += 1
        elif row is None or row.ts_ms < heartbeat.ts_ms:
            found.behind += 1
        else:
            found.wrong.append(f"the row of {key.decode()} is {_said(row)}, not {_said(heartbeat)}")
    for key in rows.keys() - newest.keys():
        found.wrong.append(f"there is a row of {key.decode()}, which has sent nothing")
    return found


def _said(heartbeat: Heartbeat) -> str:
    return f"({heartbeat.device_id}, {heartbeat.ts_ms}, {heartbeat.status})"


async def fetch_rows(connection: asyncpg.Connection, table: Table) -> dict[bytes, Heartbeat]:
    """The whole table, by the room's key."""
    records = await connection.fetch(
        f"SELECT hotel_id, room_id, ts_ms, device_id, status FROM {table.quoted}"
    )
    return {room_key(record[0], record[1]): Heartbeat(*record) for record in records}


def sample(rows: Rows, count: int) -> list[Heartbeat]:
    """A few rows to show: half of them, if there are such, of rooms with names beyond ASCII."""
    ordered = sorted(rows.values(), key=lambda row: (row.hotel_id, row.room_id))
    named = _spread([row for row in ordered if not row.room_id.isascii()], count // 2)
    plain = _spread([row for row in ordered if row.room_id.isascii()], count - len(named))
    return named + plain


def _spread(rows: Sequence[Heartbeat], count: int) -> list[Heartbeat]:
    """So many of them, or all, from everywhere in the list."""
    count = min(count, len(rows))
    return [rows[index * len(rows) // count] for index in range(count)]
