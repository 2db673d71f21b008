"""The PostgreSQL sink: the newest heartbeats of rooms, upserted a batch per statement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from heartbeat_stream.core.heartbeat import Heartbeat
from heartbeat_stream.core.reasons import Reason
from heartbeat_stream.sinks.json_statement import JsonStatement
from heartbeat_stream.sinks.postgres_errors import SinkUnavailable
from heartbeat_stream.sinks.postgres_settings import PostgresSettings
from heartbeat_stream.sinks.table import Table, upsert_sql

__all__ = ["PostgresSettings", "PostgresSink", "Refused", "SinkUnavailable", "Table"]

Record = tuple[int, str, str | None, int, int | None]  # the columns in the table's order


@dataclass(frozen=True, slots=True)
class Refused:
    """A row that the database will not take, whoever sends it and whenever."""

    index: int  # in the sequence that was given to upsert()
    reason: Reason  # ROW_REFUSED
    detail: str  # SQLSTATE and the server's message, one line, without the row's values


class PostgresSink(JsonStatement):
    """Writes heartbeats into one table. Of the rows that were sent, those were written that were
    inserted or updated, and those turned away that the table had already, or newer ones."""

    def __init__(self, settings: PostgresSettings, table: Table) -> None:
        super().__init__(settings, upsert_sql(table))

    async def start(self) -> None:
        """Return at once: connections are opened when first needed, the database may be away."""

    async def upsert(self, rows: Sequence[Heartbeat]) -> list[Refused]:
        """Land all rows, and return those that the database refuses for what they are.

        Every other row is acknowledged when this returns: it is in the table, or the table has
        one of the same room that is not older. Of a room there should be one row (two cost more
        statements), and concurrent calls should have no room in common (they would wait for each
        other).

        Raises SinkUnavailable if that is not so for reasons that are no row's; some of the rows
        may have landed then. It is the caller who tries again, with what is newest at that time;
        a row that is sent again harms nothing. It takes at most the connect timeout and, for each
        statement (one, unless rows are refused), the statement timeout and PATIENCE_MS, after
        having waited for a connection where more calls run than there are connections. 5,000 rows
        hold up the event loop for about 5 ms.

        If it is cancelled, the statement may land still.
        """
        if not rows:
            return []
        records: list[Record] = [
            (row.hotel_id, row.room_id, row.device_id, row.ts_ms, row.status) for row in rows
        ]
        faults = await self.land(records)
        return [Refused(index, Reason.ROW_REFUSED, fault.detail) for index, fault in faults]
