"""Whether the table, and what the worker has counted, are as they must be."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

import asyncpg

from heartbeat_stream.core.heartbeat import Heartbeat
from heartbeat_stream.local.demo.comparison import Comparison, compare, fetch_rows
from heartbeat_stream.local.demo.figures import Figures
from heartbeat_stream.local.demo.watching import Watcher
from heartbeat_stream.local.simulate import SimulationResult
from heartbeat_stream.sinks.table import Table

__all__ = ["Snapshot", "judge", "take_snapshot"]

_TRIES = 20
_PAUSE_S = 0.05


class Snapshot(NamedTuple):
    """The table, and the worker's figures shortly before and after it was read."""

    rows: Mapping[bytes, Heartbeat]
    before: Figures
    after: Figures

    @property
    def quiet(self) -> bool:
        """Whether nothing was written meanwhile, so that rows and figures belong together."""
        return self.before.rows_written == self.after.rows_written and not (
            self.before.in_flight or self.after.in_flight
        )


async def take_snapshot(watcher: Watcher, connection: asyncpg.Connection, table: Table) -> Snapshot:
    """Read the table in a moment without a write, or else, after some tries, whenever.

    Raises ServerError as the watcher does, and asyncpg's errors.
    """
    for _ in range(_TRIES):
        await watcher.ask()
        before = watcher.figures
        rows = await fetch_rows(connection, table)
        await watcher.ask()
        snapshot = Snapshot(rows, before, watcher.figures)
        if snapshot.quiet:
            break
        await asyncio.sleep(_PAUSE_S)
    return snapshot


def judge(snapshot: Snapshot, sent: SimulationResult) -> tuple[Comparison, list[str]]:
    """Compare with what was sent, all of which has been read. The second is what is wrong."""
    comparison = compare(snapshot.rows, sent.oracle)
    problems = list(comparison.wrong)
    after = snapshot.after
    # Rooms may have been written meanwhile, but none has become pending.
    most = snapshot.before.pending + after.refused
    if not after.pending - after.in_flight <= comparison.behind <= most:
        problems.append(
            f"{comparison.behind:,} rooms have a heartbeat that is newer than their row, but "
            f"{after.pending:,} are to be written"
        )
    broken = {str(reason): count for reason, count in sent.counts.broken.items()}
    if after.records != sent.counts.sent or dict(after.dead_letters) != broken:
        problems.append(
            f"{sent.counts.sent:,} heartbeats were sent, {sum(broken.values()):,} of them broken, "
            f"but the worker has counted {after.records:,} and {after.broken:,} dead letters"
        )
    return comparison, problems
