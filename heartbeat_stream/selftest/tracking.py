"""The self-test of tracking: report, wait for the rows, compare."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple

import asyncpg

from heartbeat_stream.core.tracking import MARK
from heartbeat_stream.recovery.database import database_connection
from heartbeat_stream.selftest.places import Place, open_door, open_topic
from heartbeat_stream.selftest.reports import (
    PROJECT,
    Kind,
    Report,
    Rows,
    event_name,
    make_reports,
    users_of,
    wanted_rows,
)
from heartbeat_stream.settings import Settings
from heartbeat_stream.sinks.table import Table

__all__ = ["Outcome", "door_url", "run_selftest", "what_is_wrong"]

_POLL_S = 0.25
_SETTLED_S = 5.0

Found = Mapping[Kind, Rows]


class Outcome(NamedTuple):
    """What was sent, and the rows of it that are there."""

    reports: Sequence[Report]
    policy: str
    found: Found

    @property
    def wanted(self) -> Found:
        """The rows that should be there."""
        return wanted_rows(self.reports, self.policy)

    @property
    def agrees(self) -> bool:
        return self.wanted == self.found

    def lines(self) -> Iterator[str]:
        """A table for people."""
        columns = ("sent", "rows wanted", "rows found", "marked wanted", "marked found")
        yield f"{'kind':<12}" + "".join(f"{name:>15}" for name in columns)
        sent = Counter[Kind]()
        for report in self.reports:
            sent[report.kind] += len(report.events)
        for kind, wanted in self.wanted.items():
            found = self.found[kind]
            numbers = (sent[kind], wanted.stored, found.stored, wanted.marked, found.marked)
            line = f"{kind:<12}" + "".join(f"{number:>15,}" for number in numbers)
            yield line if wanted == found else f"{line}  WRONG"


async def run_selftest(
    settings: Settings, url: str | None, seconds: float, progress: Callable[[str], None]
) -> Outcome:
    """Send all reports, and wait so many seconds at most for their rows to be as they should.

    ``url``: a collector that takes the reports; without it the setting of the place decides.
    Raises RecoveryError, SinkUnavailable, and what Kafka raises.
    """
    run = uuid.uuid4().hex[:12]
    reports = make_reports(run, time.time_ns() // 1_000_000)
    wanted = wanted_rows(reports, settings.tracking_policy)
    async with database_connection(settings) as connection:
        # Before anything is sent: a database that is not there is told at once.
        await _count(connection, settings, run)
        async with _place(settings, url) as place:
            for number, report in enumerate(reports, 1):
                await place.send(report)
                progress(f"{number} of {len(reports)} reports sent")
        found = await _wait(connection, settings, run, wanted, seconds, progress)
    return Outcome(reports, settings.tracking_policy, found)


def door_url(settings: Settings) -> str:
    """Where the collector of these settings listens, as seen from this machine."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.collect_host, settings.collect_host)
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.collect_port}"


def _place(settings: Settings, url: str | None) -> AbstractAsyncContextManager[Place]:
    if url is None and settings.tracking_place == "door":
        url = door_url(settings)
    return open_topic(settings) if url is None else open_door(url)


async def _wait(
    connection: asyncpg.Connection,
    settings: Settings,
    run: str,
    wanted: Found,
    seconds: float,
    progress: Callable[[str], None],
) -> Found:
    """What is in the table once it is as wanted, or no more can be hoped for: the time is over, or
    the last reports have come through and nothing has changed since."""
    total = sum(rows.stored for rows in wanted.values())
    now = time.monotonic()
    give_up_at, changed_at, before = now + seconds, now, None
    while True:
        found = await _count(connection, settings, run)
        progress(f"{sum(rows.stored for rows in found.values())} of {total} rows are there")
        now = time.monotonic()
        if found != before:
            before, changed_at = found, now
        settled = found[Kind.SINGLE] == wanted[Kind.SINGLE] and now - changed_at >= _SETTLED_S
        if found == wanted or settled or now >= give_up_at:
            return found
        await asyncio.sleep(_POLL_S)


async def _count(connection: asyncpg.Connection, settings: Settings, run: str) -> Found:
    table = Table.parse(settings.tracking_table)
    rows = await connection.fetch(
        f"""\
SELECT event, count(*) AS stored, count(*) FILTER (WHERE starts_with(remark, '{MARK}')) AS marked
FROM {table.quoted}
WHERE project = $1 AND distinct_id = ANY($2::text[]) AND received_at > now() - interval '1 day'
GROUP BY event""",
        PROJECT,
        users_of(run),
    )
    found = {row["event"]: Rows(row["stored"], row["marked"]) for row in rows}
    return {kind: found.get(event_name(kind), Rows(0, 0)) for kind in Kind}


def what_is_wrong(outcome: Outcome, settings: Settings) -> str:
    """In one line, where the rows do not agree: what it looks like, and what to do."""
    if not any(rows.stored for rows in outcome.found.values()):
        return (
            f"no row of it is in the table {settings.tracking_table}: is a worker running with "
            "HEARTBEAT_JOBS=tracking, and with these topics and this table?"
        )
    other = "drop" if outcome.policy == "mark" else "mark"
    if outcome._replace(policy=other).agrees:
        return (
            f"the rows are those of the policy {other}: set HEARTBEAT_TRACKING_POLICY here as it "
            "is set for the workers and collectors"
        )
    return (
        "the rows do not agree: see the runbook, and what `heartbeat-stream check` says; rows that "
        "are only late would be there with a longer --seconds"
    )
