"""How long after it is due a room is in the database, under a steady load.

The end of a latency is the database's own: the time of the commit, of the transaction that wrote
the row. Its beginning follows from the rule (`due_times.py`), from when heartbeats were produced
and from the acknowledged writes, as the worker's changelog has them. A heartbeat is taken to have
arrived when it was produced, so a latency that its window decides is overstated by the time that
the heartbeat took to the worker; one that the cooldown decides is exact to the millisecond.

The longest stall of the worker's event loop is taken under the same load.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import asyncpg

from heartbeat_stream.bench.due_times import Latencies, Rule, Write, latencies
from heartbeat_stream.bench.ground import Ground, Site
from heartbeat_stream.bench.load import VALUE_ENDS, key_of, room_of, value_start
from heartbeat_stream.bench.verification import read_topic
from heartbeat_stream.bench.worker_process import BenchError, WorkerProcess
from heartbeat_stream.core.heartbeat import parse_key
from heartbeat_stream.jobs.heartbeat_tables import WRITTEN, read_written
from heartbeat_stream.local.record_sender import open_sender

__all__ = ["Latency", "LatencyTest", "measure_latency"]

_TICK_MS = 50
_POLL_S = 5.0
#: A stall is reported for so long (`loop_monitor.py`): one of the start is forgotten by then.
_STALLS_REMEMBERED_S = 60.0

_AUDIT = """
CREATE TABLE {audit} (hotel_id SMALLINT, room_id TEXT, ts_ms BIGINT);
CREATE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN INSERT INTO {audit} SELECT hotel_id, room_id, ts_ms FROM written; RETURN NULL; END $$;
CREATE TRIGGER bench_inserts AFTER INSERT ON {table} REFERENCING NEW TABLE AS written
FOR EACH STATEMENT EXECUTE FUNCTION {function}();
CREATE TRIGGER bench_updates AFTER UPDATE ON {table} REFERENCING NEW TABLE AS written
FOR EACH STATEMENT EXECUTE FUNCTION {function}();
"""
_COMMITS = """
SELECT hotel_id, room_id, ts_ms, extract(epoch FROM pg_xact_commit_timestamp(xmin))::float8 * 1000
FROM {audit}
"""

Say = Callable[[str], None]


@dataclass(frozen=True)
class LatencyTest:
    """A load: each room in turn, so many heartbeats a second, for so long."""

    rooms: int
    per_second: int
    seconds: float
    rule: Rule
    partitions: int = 8


@dataclass(frozen=True)
class Latency:
    """What came of it. ``stall_s`` covers the worker's start, too, where ``stall_with_start``.

    ``inferred``: writes whose acknowledgement is not in the changelog, and was taken for the
    commit: the latency that follows on one is overstated by the time between the two.
    """

    test: LatencyTest
    broker: str
    sent: int
    sent_per_second: float
    latencies: Latencies
    inferred: int
    worker_cpu_share: float
    stall_s: float
    stall_with_start: bool


async def measure_latency(ground: Ground, test: LatencyTest, say: Say) -> Latency:
    """Raises BenchError and SendError."""
    topic = await ground.create_topic("latency", test.partitions)
    site = ground.site(
        topic,
        test.partitions,
        keyed=True,
        buffer_window_ms=str(test.rule.window_ms),
        cooldown_ms=str(test.rule.cooldown_ms),
    )
    await asyncio.to_thread(site.init)
    names = {"audit": f"{site.table.name}_audit", "function": f"{site.table.name}_note"}
    await ground.execute(_AUDIT.format(table=site.table.quoted, **names))
    arrivals: dict[int, list[int]] = defaultdict(list)
    with site.worker() as worker:
        await asyncio.to_thread(worker.wait_until_ready)
        cpu, started = worker.cpu_seconds(), time.perf_counter()
        watching = asyncio.create_task(_longest_stall(worker, test.seconds))
        await _produce(ground.brokers, topic, test, arrivals, say)
        elapsed = time.perf_counter() - started
        cpu = worker.cpu_seconds() - cpu
        stall, with_start = await watching
        end_ms = time.time_ns() // 1_000_000
        await asyncio.to_thread(worker.stop)
    say("latency: reading what was written when")
    writes, inferred = await _writes(ground, site, names["audit"])
    sent = sum(map(len, arrivals.values()))
    return Latency(
        test,
        ground.kind,
        sent,
        sent / elapsed,
        latencies(test.rule, arrivals, writes, end_ms),
        inferred,
        cpu / elapsed,
        stall,
        with_start,
    )


async def _produce(
    brokers: str, topic: str, test: LatencyTest, arrivals: dict[int, list[int]], say: Say
) -> None:
    keys = [key_of(room) for room in range(test.rooms)]
    starts = [value_start(room) for room in range(test.rooms)]
    async with open_sender(brokers, topic, {}) as sender:
        started = time.perf_counter()
        sent = 0
        while (elapsed := time.perf_counter() - started) < test.seconds:
            due = int(elapsed * test.per_second)
            now = time.time_ns() // 1_000_000
            end = VALUE_ENDS[now % 3]
            rooms = [number % test.rooms for number in range(sent, due)]
            await sender.send([(keys[r], b"%b%d%b" % (starts[r], now, end)) for r in rooms], now)
            for room in rooms:
                arrivals[room].append(now)
            sent = due
            say(f"latency: {sent:,} heartbeats sent, {elapsed:.0f} of {test.seconds:.0f} s")
            await asyncio.sleep(_TICK_MS / 1000)
        await sender.flush()


async def _longest_stall(worker: WorkerProcess, seconds: float) -> tuple[float, bool]:
    longest, with_start = 0.0, seconds < _STALLS_REMEMBERED_S + _POLL_S
    until = worker.ready_at + seconds
    while (left := until - time.perf_counter()) > 0:
        await asyncio.sleep(min(_POLL_S, left))
        worker.check()
        age = time.perf_counter() - worker.ready_at
        if with_start or age > _STALLS_REMEMBERED_S:
            figures = await asyncio.to_thread(worker.metrics)
            longest = max(longest, figures["heartbeat_loop_stall_seconds_max"])
    return longest, with_start


async def _writes(ground: Ground, site: Site, audit: str) -> tuple[dict[int, list[Write]], int]:
    """All writes, and how many of them the changelog does not know."""
    connection = await asyncpg.connect(ground.postgres.url)
    try:
        rows = await connection.fetch(_COMMITS.format(audit=audit))
    finally:
        await connection.close()
    committed = {(room_of(row[0], row[1]), row[2]): row[3] for row in rows}
    writes: dict[int, list[Write]] = defaultdict(list)
    changelog = f"{site.app_id}-{WRITTEN}-changelog"
    async for records in read_topic(ground.brokers, changelog, site.partitions):
        for record in records:
            room = room_of(*parse_key(record.key or b""))
            written = read_written(record.value or b"")
            at = committed.pop((room, written.ts_ms), None)
            if at is None:
                raise BenchError(f"room {room} counts as written, but the database has not seen it")
            writes[room].append(Write(written.ts_ms, written.at, at))
    # Two writes of a room between two checkpoints leave one record of the later. The earlier one
    # was acknowledged after its commit, so the room was due no earlier than this says.
    for (room, ts_ms), at in committed.items():
        writes[room].append(Write(ts_ms, int(at), at))
        writes[room].sort()
    return writes, len(committed)
