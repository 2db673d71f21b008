"""What the table must hold after all, and when it may have been written."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import asyncpg

from heartbeat_stream.core.heartbeat import Heartbeat
from heartbeat_stream.sinks.table import Table, ddl
from tests.support.wait import wait_until_async

__all__ = ["Attempt", "Oracle", "TargetTable", "early_writes"]

RoomId = tuple[int, str]

# The database's clock and the worker's are one, read by two programs and rounded by one of them.
CLOCK_TOLERANCE_MS = 5.0
SHOWN = 8


class Oracle:
    """Remembers every accepted heartbeat: of each room the newest must end up in the table.

    Of two with the same ``ts_ms`` the first counts, so give them in the order of their offsets; or
    let heartbeats of a room and a time be equal, where they go to several partitions.
    """

    def __init__(self) -> None:
        self.newest: dict[RoomId, Heartbeat] = {}
        self.accepted = 0

    def accept(self, heartbeats: Iterable[Heartbeat]) -> None:
        for heartbeat in heartbeats:
            self.accepted += 1
            room = (heartbeat.hotel_id, heartbeat.room_id)
            known = self.newest.get(room)
            if known is None or heartbeat.ts_ms > known.ts_ms:
                self.newest[room] = heartbeat

    def differences(self, rows: dict[RoomId, Heartbeat]) -> list[str]:
        """What is wrong with these rows, a line for each room; empty where all are right."""
        lines = [
            f"{room}: {_shown(rows.get(room))} instead of {_shown(newest)}"
            for room, newest in self.newest.items()
            if rows.get(room) != newest
        ]
        return lines + [f"{room}: not expected at all" for room in rows if room not in self.newest]

    async def matches(self, table: TargetTable, seconds: float = 60.0) -> None:
        """Wait until the table holds exactly what it must."""
        wrong: list[str] = []

        async def equal() -> bool:
            wrong[:] = self.differences(await table.rows())
            return not wrong

        try:
            await wait_until_async(equal, seconds, what="the table equals the oracle", every=0.1)
        except AssertionError as error:
            raise AssertionError(
                f"{error}: {len(wrong)} of {len(self.newest)} rooms differ:\n"
                + "\n".join(wrong[:SHOWN])
            ) from None


def _shown(heartbeat: Heartbeat | None) -> str:
    if heartbeat is None:
        return "nothing"
    return f"({heartbeat.device_id}, {heartbeat.ts_ms}, {heartbeat.status})"


class Attempt(NamedTuple):
    """A row in a statement that was committed, also where the guard turned it away."""

    room: RoomId
    ts_ms: int
    at_ms: float  #: the database's clock while it was written


class TargetTable:
    """The target table in the database, with a trigger that remembers each write."""

    def __init__(self, url: str, name: str) -> None:
        self.url = url
        self.table = Table.parse(name)
        self._audit = Table(self.table.schema, f"{self.table.name}_audit")
        self._backward = Table(self.table.schema, f"{self.table.name}_backward")

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Any]:
        connection = await asyncpg.connect(self.url, timeout=10)
        try:
            yield connection
        finally:
            connection.terminate()

    async def create(self) -> None:
        """Make the table and its triggers."""
        audit, function = self._audit.quoted, Table(None, f"{self._audit.name}_note").quoted
        backward, step = self._backward.quoted, Table(None, f"{self._backward.name}_note").quoted
        async with self.connect() as connection:
            await connection.execute(f"""
                {ddl(self.table)};
                CREATE TABLE {audit} (
                  hotel_id SMALLINT, room_id TEXT, ts_ms BIGINT, at_ms FLOAT8
                );
                -- As their owner: whoever writes rows needs no rights on what is noted.
                CREATE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
                BEGIN
                  INSERT INTO {audit} VALUES (
                    NEW.hotel_id, NEW.room_id, NEW.ts_ms,
                    extract(epoch FROM clock_timestamp()) * 1000
                  );
                  RETURN NEW;
                END $$;
                -- BEFORE INSERT also sees the rows that end as updates or are turned away.
                CREATE TRIGGER note BEFORE INSERT ON {self.table.quoted}
                FOR EACH ROW EXECUTE FUNCTION {function}();
                CREATE TABLE {backward} (
                  hotel_id SMALLINT, room_id TEXT, old_ts_ms BIGINT, new_ts_ms BIGINT
                );
                CREATE FUNCTION {step}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
                BEGIN
                  INSERT INTO {backward} VALUES (
                    NEW.hotel_id, NEW.room_id, OLD.ts_ms, NEW.ts_ms
                  );
                  RETURN NEW;
                END $$;
                CREATE TRIGGER note_backward AFTER UPDATE ON {self.table.quoted}
                FOR EACH ROW WHEN (NEW.ts_ms <= OLD.ts_ms) EXECUTE FUNCTION {step}();
            """)

    async def rows(self) -> dict[RoomId, Heartbeat]:
        """Everything in the table."""
        async with self.connect() as connection:
            records = await connection.fetch(
                f"SELECT hotel_id, room_id, ts_ms, device_id, status FROM {self.table.quoted}"
            )
        return {(row[0], row[1]): Heartbeat(*row) for row in records}

    async def attempts(self) -> list[Attempt]:
        """Every write that was committed, the earliest first."""
        async with self.connect() as connection:
            records = await connection.fetch(
                f"SELECT hotel_id, room_id, ts_ms, at_ms FROM {self._audit.quoted} ORDER BY at_ms"
            )
        return [Attempt((row[0], row[1]), row[2], row[3]) for row in records]

    async def never_went_back(self) -> None:
        """Require that no update has put an older heartbeat, or one as old, in place of another."""
        async with self.connect() as connection:
            steps = await connection.fetch(f"SELECT * FROM {self._backward.quoted}")
        assert not steps, f"{len(steps)} updates went back, as {steps[:SHOWN]}"

    async def keeps_cooldown(self, cooldown_ms: int, *, crashes: int = 0) -> None:
        """Require that no room was written within its cooldown, but for once for each crash."""
        early = early_writes(await self.attempts(), cooldown_ms)
        guilty = {room: gaps for room, gaps in early.items() if len(gaps) > crashes}
        assert not guilty, (
            f"{len(guilty)} rooms were written within their cooldown of {cooldown_ms} ms more than "
            f"{crashes} times, as {dict(list(guilty.items())[:SHOWN])}"
        )


def early_writes(attempts: Sequence[Attempt], cooldown_ms: int) -> dict[RoomId, list[float]]:
    """By room, the distances of successive writes in ms that are shorter than the cooldown."""
    last: dict[RoomId, float] = {}
    early: dict[RoomId, list[float]] = defaultdict(list)
    for attempt in sorted(attempts, key=lambda attempt: attempt.at_ms):
        gap = attempt.at_ms - last.get(attempt.room, float("-inf"))
        if gap < cooldown_ms - CLOCK_TOLERANCE_MS:
            early[attempt.room].append(round(gap, 1))
        last[attempt.room] = attempt.at_ms
    return dict(early)


def now_ms() -> int:
    """The wall clock, as heartbeats carry it."""
    return time.time_ns() // 1_000_000
