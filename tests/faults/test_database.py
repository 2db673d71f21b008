"""PostgreSQL goes away, refuses, freezes or quarrels, while heartbeats keep coming."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import asyncpg
import pytest
from aiokafka.structs import ConsumerRecord

from heartbeat_stream.core.heartbeat import Heartbeat
from heartbeat_stream.local.fleet import Fleet
from heartbeat_stream.local.postgres import PostgresServer
from tests.support.brokers import on_kafka
from tests.support.oracle import Oracle, now_ms
from tests.support.topic_reader import open_reader
from tests.support.worker import Worker
from tests.support.world import World, load

RATE = 2_000
HOTELS, ROOMS_PER_HOTEL = 40, 100
ROOMS = HOTELS * ROOMS_PER_HOTEL
COOLDOWN_MS = 2_000
#: So many heartbeats pass while a fault lasts: six seconds of them.
THROUGHOUT = 6 * RATE


@pytest.fixture(scope="module")
def database() -> Iterator[PostgresServer]:
    """A server that may be mistreated."""
    with PostgresServer() as server:
        yield server


class Scene(NamedTuple):
    """Where a fault happens."""

    world: World
    worker: Worker
    database: PostgresServer

    async def heartbeats_pass(self, count: int = THROUGHOUT) -> None:
        """Return when the worker has taken in so many more; it is healthy all the time."""
        before = (await self.worker.metrics())["heartbeat_records_total"]
        for part in range(4):
            goal = before + count * (part + 1) / 4
            await self.worker.until_metric("heartbeat_records_total", goal, 60)
            for probe in ("live", "ready"):
                assert (await self.worker.get(f"/health/{probe}"))[0] == 200

    async def retries(self) -> dict[str, float]:
        """Failed writes by their kind."""
        _, body = await self.worker.get("/metrics")
        found = re.findall(r'heartbeat_write_retries_total{kind="(.+?)"} (\S+)', body.decode())
        return {kind: float(count) for kind, count in found}

    @asynccontextmanager
    async def administrator(self) -> AsyncIterator[asyncpg.Connection]:
        """A connection that may write, whatever is the default."""
        async with self.world.table.connect() as connection:
            await connection.execute("SET default_transaction_read_only = off")
            yield connection


Fault = Callable[[Scene], Awaitable[None]]


async def stopped(scene: Scene) -> None:
    scene.database.stop("fast")
    await scene.heartbeats_pass()
    scene.database.start()


async def crashed(scene: Scene) -> None:
    scene.database.stop("immediate")
    await scene.heartbeats_pass()
    scene.database.start()


async def restarted(scene: Scene) -> None:
    for _ in range(3):
        await asyncio.to_thread(scene.database.restart)
        await scene.heartbeats_pass(RATE)


async def read_only(scene: Scene) -> None:
    async with scene.administrator() as connection:
        await connection.execute("ALTER SYSTEM SET default_transaction_read_only = on")
        await connection.execute("SELECT pg_reload_conf()")
        try:
            await scene.heartbeats_pass()
        finally:
            await connection.execute("ALTER SYSTEM RESET default_transaction_read_only")
            await connection.execute("SELECT pg_reload_conf()")


async def frozen(scene: Scene) -> None:
    scene.database.freeze()
    try:
        await scene.heartbeats_pass()
    finally:
        scene.database.thaw()


async def disconnected(scene: Scene) -> None:
    """Every session of the worker is terminated, again and again."""

    async def terminate() -> None:
        async with scene.administrator() as connection:
            while True:
                await connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE application_name = $1",
                    scene.world.settings.app_id,
                )
                await asyncio.sleep(0.02)

    async with in_background(terminate()):
        await scene.heartbeats_pass()


async def contended(scene: Scene) -> None:
    """Somebody else locks the same rows, the last one first."""
    table = scene.world.table.table.quoted

    async def lock(hotel: int) -> None:
        async with scene.administrator() as connection:
            # Whoever looks for a deadlock first is ended by it: the worker, after a second.
            await connection.execute("SET deadlock_timeout = '10s'")
            while True:
                rooms = await connection.fetch(
                    f"SELECT room_id FROM {table} WHERE hotel_id = $1 ORDER BY room_id DESC", hotel
                )
                with contextlib.suppress(asyncpg.DeadlockDetectedError):
                    async with connection.transaction():
                        for (room,) in rooms:
                            await connection.execute(
                                f"SELECT 1 FROM {table} WHERE hotel_id = $1 AND room_id = $2 "
                                "FOR UPDATE",
                                hotel,
                                room,
                            )
                await asyncio.sleep(0.01)

    async with scene.administrator() as connection:
        hotels = await connection.fetch(f"SELECT DISTINCT hotel_id FROM {table} LIMIT 3")
    async with contextlib.AsyncExitStack() as background:
        for (hotel,) in hotels:
            await background.enter_async_context(in_background(lock(hotel)))
        await scene.heartbeats_pass()


async def disk_full(scene: Scene) -> None:
    """Every write ends as it does on a full disk."""
    table = scene.world.table.table
    function = f'"{table.name}_full"'
    async with scene.administrator() as connection:
        await connection.execute(f"""
            CREATE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN
              RAISE EXCEPTION 'could not extend file: No space left on device'
              USING ERRCODE = '53100';
            END $$;
            CREATE TRIGGER disk_full BEFORE INSERT ON {table.quoted}
            FOR EACH ROW EXECUTE FUNCTION {function}();
        """)
        try:
            await scene.heartbeats_pass()
        finally:
            await connection.execute(f"DROP FUNCTION {function} CASCADE")


@asynccontextmanager
async def in_background(work: Awaitable[None]) -> AsyncIterator[None]:
    """Does the work while the block runs. It must not end, or fail, before that."""
    task = asyncio.ensure_future(work)
    try:
        yield
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.wait([task])


#: The fault, what the worker calls it, and how many of a room's writes may have landed unknown to
#: the worker, which then writes again within the cooldown. None: as many as there were retries.
FAULTS: list[tuple[Fault, set[str], int | None]] = [
    (stopped, {"connection", "admin-shutdown", "starting"}, 1),
    (crashed, {"connection", "admin-shutdown", "starting"}, 1),
    (restarted, {"connection", "admin-shutdown", "starting"}, 3),
    (read_only, {"read-only"}, 0),
    (frozen, {"timeout"}, 1),
    (disconnected, {"connection", "admin-shutdown"}, None),
    (contended, {"deadlock"}, 0),
    (disk_full, {"disk-full"}, 0),
]


@on_kafka
@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "kinds", "unknown"), FAULTS, ids=[fault.__name__ for fault, *_ in FAULTS]
)
async def test_under_load(
    world: World,
    database: PostgresServer,
    fault: Fault,
    kinds: set[str],
    unknown: int | None,
) -> None:
    await world.prepare(
        database_url=database.url,
        cooldown_ms=COOLDOWN_MS,
        database_statement_timeout_ms=2_000,
        database_connect_timeout_ms=2_000,
    )
    worker = await world.start_worker().ready()
    scene = Scene(world, worker, database)
    fleet = Fleet(hotels=HOTELS, rooms_per_hotel=ROOMS_PER_HOTEL)
    async with load(world, fleet, RATE) as running:
        await worker.until_metric("heartbeat_rows_written_total", ROOMS)
        await fault(scene)
        # Once the database answers again a due room is tried within a second.
        written = (await worker.metrics())["heartbeat_rows_written_total"]
        await worker.until_metric("heartbeat_rows_written_total", written + 1, 4)
        await worker.until_metric("heartbeat_rows_written_total", written + ROOMS)
        retries = await scene.retries()
    await running.oracle.matches(world.table)
    assert set(retries) & kinds, retries
    if unknown is None:
        unknown = int(sum(retries.values()))
    await world.table.keeps_cooldown(COOLDOWN_MS, crashes=unknown)
    await world.no_lag()
    # An outage sends nothing to the dead letters.
    assert len(await world.dead_letters()) == fleet.counts.broken.total()
    await worker.stopped()
    assert "Traceback" not in worker.log_text()


async def test_one_row_that_the_database_refuses_among_thousands(
    world: World, database: PostgresServer
) -> None:
    rooms, poison, cooldown_ms = 5_000, "2500", 1_500
    await world.prepare(database_url=database.url, cooldown_ms=cooldown_ms)
    table, oracle = world.table.table.quoted, Oracle()
    async with world.table.connect() as connection:
        await connection.execute(
            f"ALTER TABLE {table} ADD CONSTRAINT no_poison CHECK (room_id <> '{poison}')"
        )
        worker = await world.start_worker().ready()
        first = now_ms()
        await world.send([Heartbeat(7, f"{room}", first) for room in range(rooms)], oracle=oracle)
        refused = oracle.newest.pop((7, poison))
        await oracle.matches(world.table)
        (letter,) = await dead_letters(world, worker, 1)
        headers = dict(letter.headers)
        assert headers["reason"] == b"row-refused"
        assert headers["detail"].startswith(b"23514 ")
        assert letter.key == b"7:2500"
        assert f'"ts_ms":{refused.ts_ms}'.encode() in letter.value
        # The version counts as settled, and is not tried again however long it stays the newest.
        await settled(worker)
        assert (await world.newest_in(world.changelog("last_written_at")))[b"7:2500"]["ts_ms"] == (
            refused.ts_ms
        )
        assert (await worker.metrics())["heartbeat_rooms_pending"] == 0
        # A newer record tries again, after the cooldown that the refusal has started.
        newer = Heartbeat(7, poison, now_ms(), "newer")
        await world.send([newer])
        letters = await dead_letters(world, worker, 2)
        assert f'"ts_ms":{newer.ts_ms}'.encode() in letters[1].value
        assert letters[1].timestamp - letters[0].timestamp >= cooldown_ms - 500  # the window
        # Once the database takes it, the next one lands, and the refused ones are past.
        await connection.execute(f"ALTER TABLE {table} DROP CONSTRAINT no_poison")
        await world.send([Heartbeat(7, poison, now_ms(), "good")], oracle=oracle)
        await oracle.matches(world.table)
        await world.no_lag()
        assert len(await world.dead_letters()) == 2
        assert len(await world.table.attempts()) == rooms
        await worker.stopped()


async def dead_letters(world: World, worker: Worker, count: int) -> list[ConsumerRecord]:
    """So many, oldest first: counted by the worker, and then acknowledged by the broker."""
    await worker.until_metric("heartbeat_dead_letters_total", count)
    async with open_reader(world.bootstrap_servers, world.dead_letter_topic) as reader:
        letters = await reader.until(count)
    assert len(letters) == count
    return sorted(letters, key=lambda record: record.timestamp)


async def settled(worker: Worker) -> None:
    """Return after a checkpoint that began after this."""
    done = (await worker.metrics())["heartbeat_checkpoints_total"]
    await worker.until_metric("heartbeat_checkpoints_total", done + 2)
