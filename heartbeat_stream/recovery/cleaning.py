"""`clean`: of the stored copies of each event one is kept, and the others are marked or deleted.

Groups are found by one query, whose answer waits at the server, and are judged and changed some
hundreds at a time, in a transaction for each such batch. So memory is bounded by a batch, locks
last for a batch, and a run that is cut off can be repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import asyncpg

from heartbeat_stream.core.cleaning import Verdicts, judge_group
from heartbeat_stream.recovery.database import database_connection
from heartbeat_stream.recovery.errors import PartlyDone, RecoveryError
from heartbeat_stream.recovery.event_groups import Key, Scope, keys_in, read_groups
from heartbeat_stream.recovery.moments import shown_time
from heartbeat_stream.recovery.operation import Progress
from heartbeat_stream.recovery.words import number_of, were
from heartbeat_stream.settings import Settings
from heartbeat_stream.sinks.event_changes import change_remarks, delete_copies

__all__ = ["EventCleaning"]

_EXISTS = "SELECT pg_catalog.to_regclass($1) IS NOT NULL"
_ALONE = "SELECT pg_try_advisory_xact_lock(hashtextextended('heartbeat-stream cleans ' || $1, 0))"


@dataclass
class _Counts:
    """Events that were looked at, their rows, and how many of these each change is for."""

    events: int = 0
    rows: int = 0
    unmark: int = 0
    mark: int = 0
    delete: int = 0


class EventCleaning:
    """See :class:`heartbeat_stream.recovery.operation.Operation`. Workers may run meanwhile: what
    they store after a batch was read is for the next run.
    """

    def __init__(self, settings: Settings, scope: Scope, *, delete: bool, batch: int) -> None:
        """``delete``: instead of marking. ``batch``: so many keys are looked at at a time."""
        self._settings = settings
        self._scope = scope
        self._delete = delete
        self._batch = batch
        self._wanted = _Counts()

    async def plan(self, progress: Progress) -> Sequence[str]:
        scope = self._scope
        span = f"from {shown_time(scope.start_ms)} until {shown_time(scope.end_ms)}"
        if scope.end_ms <= scope.start_ms:
            raise RecoveryError(f"--to does not lie behind --from: nothing is received {span}")
        self._wanted, _ = await self._go_through(progress, change=False)
        wanted = self._wanted
        return [
            f"table {scope.table}, project {scope.project}: events received {span}, with copies "
            f"of them received up to {scope.margin_ms / 1000:,g} s before or after that",
            f"{number_of(wanted.events, 'event')} with copies or a mark, in "
            f"{number_of(wanted.rows, 'row')}",
            *self._said(wanted, ("is", "are")),
        ]

    async def run(self, progress: Progress) -> Sequence[str]:
        wanted, done = await self._go_through(progress, change=True)
        said = self._said(done, ("was", "were"))
        missed = sum(
            getattr(wanted, name) - getattr(done, name) for name in ("unmark", "mark", "delete")
        )
        if missed:
            raise PartlyDone(
                f"{were(missed, 'row')} changed by somebody else meanwhile, and left as they are: "
                "repeat it",
                said,
            )
        return said

    def _said(self, counts: _Counts, verbs: tuple[str, str]) -> list[str]:
        def rows(count: int) -> str:
            return f"{number_of(count, 'row')} {verbs[count != 1]}"

        if self._delete:
            others = f"{rows(counts.delete)} deleted"
        else:
            others = f"{rows(counts.mark)} marked du-"
        return [f"{rows(counts.unmark)} freed of a du-, being the first of an event", others]

    async def _go_through(self, progress: Progress, *, change: bool) -> tuple[_Counts, _Counts]:
        """Judge all groups; with ``change`` do what is to be done. What is wanted, and was done."""
        wanted, done = _Counts(), _Counts()
        progress("looking for events with copies")
        async with (
            database_connection(self._settings) as finding,
            database_connection(self._settings) as working,
            finding.transaction(),
        ):
            await self._require(finding, alone=change)
            async for keys in keys_in(finding, self._scope, self._batch):
                async with working.transaction():
                    verdicts = await self._judge(working, keys, wanted, lock=change)
                    if change:
                        await self._apply(working, verdicts, done)
                total = f" of {self._wanted.events:,}" if change else ""
                progress(f"{wanted.events:,}{total} events with copies or a mark")
        return wanted, done

    async def _require(self, connection: asyncpg.Connection, *, alone: bool) -> None:
        """Raise RecoveryError where there is no table, or somebody else cleans it."""
        table = self._scope.table
        if not await connection.fetchval(_EXISTS, table.quoted):
            raise RecoveryError(
                f"there is no table {table}: see HEARTBEAT_TRACKING_TABLE and "
                "HEARTBEAT_DATABASE_URL"
            )
        if alone and not await connection.fetchval(_ALONE, table.quoted):
            raise RecoveryError(f"another clean of the table {table} is at work: wait for its end")

    async def _judge(
        self, connection: asyncpg.Connection, keys: Sequence[Key], wanted: _Counts, *, lock: bool
    ) -> Verdicts:
        """What is to be done about some keys; it is counted as well."""
        limit = self._settings.database_statement_timeout_ms
        await connection.execute(f"SET LOCAL statement_timeout = {limit}")
        together = Verdicts([], [], [])
        # Where the others are deleted, the one that is kept must not go meanwhile.
        lock = lock and self._delete
        for copies in await read_groups(connection, self._scope, keys, lock=lock):
            verdicts = judge_group(copies, delete=self._delete)
            if len(copies) > 1 or verdicts.unmark:
                wanted.events += 1
                wanted.rows += len(copies)
            together.add(verdicts)
        wanted.unmark += len(together.unmark)
        wanted.mark += len(together.mark)
        wanted.delete += len(together.delete)
        return together

    async def _apply(
        self, connection: asyncpg.Connection, verdicts: Verdicts, done: _Counts
    ) -> None:
        """Do it, and count it."""
        table = self._scope.table
        done.unmark += await change_remarks(connection, table, verdicts.unmark)
        done.mark += await change_remarks(connection, table, verdicts.mark)
        done.delete += await delete_copies(connection, table, verdicts.delete)
