"""How fast are rows upserted? The sink against the other ways that PostgreSQL offers.

    python -m heartbeat_stream.bench.upsert                    on an embedded PostgreSQL
    python -m heartbeat_stream.bench.upsert --url postgresql://... --batch 5000 --rounds 5

The yardstick is COPY into a temporary table and one INSERT ... SELECT ... ON CONFLICT from there,
given its rows as tuples. `sink` is the whole PostgresSink.upsert() from heartbeats, sorting and
encoding included. All ways take the rooms in a random order and write the same rows with the same
guard over one connection (`sink x2`: two batches in flight), first into an empty table, then all
rows again with a newer ts_ms.

Columns: rows per second (the best of the rounds), their ratio to COPY's, the CPU time that this
process spends on a batch, and the longest stall of its event loop over 20 batches (the best of the
rounds: this machine's other work stalls it too).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import math
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import NamedTuple

import asyncpg

from heartbeat_stream.core.heartbeat import Heartbeat
from heartbeat_stream.local.postgres import PostgresServer
from heartbeat_stream.sinks.postgres import PostgresSettings, PostgresSink
from heartbeat_stream.sinks.table import Table, ddl

TABLE = Table(None, "bench_upsert")
HOTELS = 500
START_MS = 1_700_000_000_000
ROUND_MS = 30_000
STALL_PROBE_SECONDS = 0.001

Row = tuple[int, str, str | None, int, int | None]
Writer = Callable[[Sequence[Heartbeat], Sequence[Row]], Awaitable[object]]

INTO = f"INSERT INTO {TABLE.quoted} AS current (hotel_id, room_id, device_id, ts_ms, status)"
GUARDED = """\
ON CONFLICT (hotel_id, room_id) DO UPDATE
SET device_id = excluded.device_id, ts_ms = excluded.ts_ms, status = excluded.status
WHERE current.ts_ms IS NULL OR excluded.ts_ms > current.ts_ms"""
STAGE = "hotel_id int2, room_id text, device_id text, ts_ms int8, status int2"


@contextlib.asynccontextmanager
async def sink(url: str) -> AsyncIterator[Writer]:
    """The product."""
    product = PostgresSink(PostgresSettings(url, pool_size=2), TABLE)
    yield lambda heartbeats, _: product.upsert(heartbeats)
    await product.stop(5.0)


@contextlib.asynccontextmanager
async def copy(url: str) -> AsyncIterator[Writer]:
    """COPY into a temporary table, then one INSERT ... SELECT. The yardstick."""
    connection = await asyncpg.connect(url)
    await connection.execute(f"CREATE TEMPORARY TABLE stage ({STAGE}) ON COMMIT DELETE ROWS")

    async def write(_: Sequence[Heartbeat], rows: Sequence[Row]) -> None:
        async with connection.transaction():
            await connection.copy_records_to_table("stage", records=rows)
            await connection.execute(f"{INTO} SELECT * FROM stage {GUARDED}")

    yield write
    await connection.close()


@contextlib.asynccontextmanager
async def unnest(url: str) -> AsyncIterator[Writer]:
    """Five arrays, encoded by asyncpg."""
    connection = await asyncpg.connect(url)
    arrays = "unnest($1::int2[], $2::text[], $3::text[], $4::int8[], $5::int2[])"

    async def write(_: Sequence[Heartbeat], rows: Sequence[Row]) -> None:
        columns = ([row[place] for row in rows] for place in range(5))
        await connection.execute(f"{INTO} SELECT * FROM {arrays} {GUARDED}", *columns)

    yield write
    await connection.close()


@contextlib.asynccontextmanager
async def executemany(url: str) -> AsyncIterator[Writer]:
    """One statement per row, pipelined by asyncpg, in one transaction."""
    connection = await asyncpg.connect(url)

    async def write(_: Sequence[Heartbeat], rows: Sequence[Row]) -> None:
        await connection.executemany(f"{INTO} VALUES ($1, $2, $3, $4, $5) {GUARDED}", rows)

    yield write
    await connection.close()


# How each is opened, and how many batches are in flight.
WAYS = {
    "copy": (copy, 1),
    "sink": (sink, 1),
    "sink x2": (sink, 2),
    "unnest": (unnest, 1),
    "executemany": (executemany, 1),
}
PHASES = ("insert", "update")


class Measure(NamedTuple):
    """One pass over all rooms, or what is known of several."""

    rows_per_second: float = 0.0
    cpu_ms_per_batch: float = 0.0
    stall_ms: float = math.inf


class StallProbe:
    """Measures how late the event loop comes back to somebody who only wanted to sleep."""

    def __init__(self) -> None:
        self.longest = 0.0

    async def run(self) -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(STALL_PROBE_SECONDS)
            self.longest = max(self.longest, time.perf_counter() - before - STALL_PROBE_SECONDS)


class Load(NamedTuple):
    """A heartbeat of each room, in random order, in batches; and the same as tuples."""

    heartbeats: list[list[Heartbeat]]
    rows: list[list[Row]]

    @classmethod
    def make(cls, rooms: int, batch: int, ts_ms: int) -> Load:
        heartbeats = [
            Heartbeat(
                hotel_id=room % HOTELS,
                room_id=str(1000 + room // HOTELS),
                ts_ms=ts_ms + room % ROUND_MS,
                device_id=f"device-{room:06d}",
                status=room % 3,
            )
            for room in range(rooms)
        ]
        random.shuffle(heartbeats)
        batches = [heartbeats[start : start + batch] for start in range(0, rooms, batch)]
        return cls(
            batches,
            [[(h.hotel_id, h.room_id, h.device_id, h.ts_ms, h.status) for h in b] for b in batches],
        )


async def write_all(write: Writer, load: Load, in_flight: int) -> Measure:
    """Write all batches; as many at a time as said."""
    batches = zip(*load, strict=True)

    async def lane() -> None:
        for heartbeats, rows in batches:
            await write(heartbeats, rows)

    started, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(lane() for _ in range(in_flight)))
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    count = len(load.rows)
    return Measure(sum(map(len, load.rows)) / seconds, 1000 * cpu / count)


async def longest_stall(write: Writer, load: Load, in_flight: int) -> float:
    """In milliseconds; in a pass of its own, for the probe itself costs CPU time."""
    probe = StallProbe()
    task = asyncio.create_task(probe.run())
    await write_all(write, load, in_flight)
    task.cancel()
    return 1000 * probe.longest


async def compare(
    url: str,
    rooms: int,
    batch: int,
    rounds: int,
    ways: Sequence[str] = tuple(WAYS),
    say: Callable[[str], object] = print,
) -> dict[str, dict[str, Measure]]:
    """Measure some ways, in turn and more than once: {way: {phase: the best of the rounds}}."""
    best = {way: dict.fromkeys(PHASES, Measure()) for way in ways}
    admin = await asyncpg.connect(url)
    for round_ in range(rounds):
        for way in ways:
            opened, in_flight = WAYS[way]
            await admin.execute(f"DROP TABLE IF EXISTS {TABLE.quoted}")
            await admin.execute(ddl(TABLE))
            await admin.execute("CHECKPOINT")
            async with opened(url) as write:
                for later, phase in enumerate(PHASES):
                    load = Load.make(rooms, batch, START_MS + later * ROUND_MS)
                    result = max(best[way][phase], await write_all(write, load, in_flight))
                    load = Load.make(min(rooms, 20 * batch), batch, START_MS + 2 * ROUND_MS)
                    stall = await longest_stall(write, load, in_flight) if later else math.inf
                    stall = min(best[way][phase].stall_ms, stall)
                    best[way][phase] = result._replace(stall_ms=stall)
            assert await admin.fetchval(f"SELECT count(*) FROM {TABLE.quoted}") == rooms
        say(f"upsert, batches of {batch}: round {round_ + 1} of {rounds} done")
    await admin.execute(f"DROP TABLE {TABLE.quoted}")
    await admin.close()
    return best


def report(batch: int, results: dict[str, dict[str, Measure]]) -> None:
    """Print the table of one batch size."""
    print(f"\n{batch} rows a batch     rows/s   to COPY   CPU ms/batch   stall ms")
    for phase in PHASES:
        ceiling = results["copy"][phase].rows_per_second
        for way, measures in results.items():
            rate, cpu, stall = measures[phase]
            shown = f"{stall:10.1f}" if math.isfinite(stall) else ""
            print(f"{phase} {way:12} {rate:9,.0f} {rate / ceiling:9.2f} {cpu:14.2f} {shown}")
    print(flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--url", help="a PostgreSQL to write to; an embedded one without")
    parser.add_argument("--rooms", type=int, default=100_000)
    parser.add_argument("--batch", type=int, nargs="*", default=[100, 1000, 5000])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        url = options.url or stack.enter_context(PostgresServer()).url
        for batch in options.batch:
            report(batch, asyncio.run(compare(url, options.rooms, batch, options.rounds)))


if __name__ == "__main__":
    main()
