"""`replay rows` and `replay state`: each drill of docs/replay.md on them."""

from __future__ import annotations

import time

import pytest

from heartbeat_stream.core.heartbeat import Heartbeat
from tests.support.command import run_command
from tests.support.oracle import Oracle, now_ms
from tests.support.world import World, encode

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

ROOMS = 300


async def have_rooms(world: World, oracle: Oracle) -> None:
    """Rooms in tables and database, the last of them only in the tables; no worker runs then."""
    worker = await world.start_worker().ready()
    await world.send([Heartbeat(7, f"{n}", now_ms(), "first") for n in range(ROOMS)], oracle=oracle)
    await oracle.matches(world.table)
    pending = [Heartbeat(7, f"{n}", now_ms(), "pending") for n in range(10)]
    await world.send(pending, oracle=oracle)
    await world.no_lag()
    await worker.stopped()


async def test_rows_of_a_database_that_is_restored_from_an_old_backup(world: World) -> None:
    await world.prepare(cooldown_ms=600_000)
    oracle = Oracle()
    await have_rooms(world, oracle)
    newer = Heartbeat(7, "299", now_ms(), "by somebody else")
    table = world.table.table.quoted
    async with world.table.connect() as connection:
        await connection.execute(f"DELETE FROM {table} WHERE room_id LIKE '1%'")
        await connection.execute(f"UPDATE {table} SET ts_ms = ts_ms - 60000, device_id = 'old'")
        await connection.execute(
            f"UPDATE {table} SET ts_ms = $1, device_id = $2 WHERE room_id = $3",
            newer.ts_ms,
            newer.device_id,
            newer.room_id,
        )
    oracle.newest[7, "299"] = newer
    rows = await world.table.rows()

    plan = await run_command(world, "replay", "rows", "--rate", "150", "--dry-run")
    assert f"{ROOMS} rooms go to the table {world.settings.table}, 150 a second, 2 s" in plan.out
    assert await world.table.rows() == rows
    assert "--yes" in (await run_command(world, "replay", "rows", code=1)).err
    assert await world.table.rows() == rows

    started = time.monotonic()
    done = await run_command(world, "replay", "rows", "--rate", "150", "--yes")
    assert time.monotonic() - started >= (ROOMS - 150) / 150
    assert oracle.differences(await world.table.rows()) == []
    assert f"{ROOMS - 1} rows were written, 1 was as new or newer already" in done.out

    # Safe to repeat.
    done = await run_command(world, "replay", "rows", "--yes")
    assert f"0 rows were written, {ROOMS} were as new" in done.out


async def test_rows_that_the_database_refuses_are_said_and_the_others_land(world: World) -> None:
    await world.prepare(cooldown_ms=600_000)
    oracle = Oracle()
    await have_rooms(world, oracle)
    async with world.table.connect() as connection:
        table = world.table.table.quoted
        await connection.execute(f"TRUNCATE {table}")
        await connection.execute(f"ALTER TABLE {table} ADD CHECK (room_id NOT IN ('7', '77'))")
    done = await run_command(world, "replay", "rows", "--yes", code=1)
    assert f"{ROOMS - 2} rows were written, but the database refuses 2" in done.err
    away = "postgresql://nobody@127.0.0.1:1/nowhere?connect_timeout=1"
    plan = await run_command(world, "replay", "rows", "--dry-run", database_url=away)
    assert f"{ROOMS} rooms" in plan.out
    assert "the database does not answer now (" in plan.out
    missing = await run_command(world, "replay", "rows", "--dry-run", code=1, table="no_such_table")
    assert "table no_such_table does not exist: run `heartbeat-stream init`" in missing.err


@pytest.mark.parametrize("keyed", [False, True], ids=["unkeyed", "keyed"])
async def test_the_tables_of_a_new_application_id(world: World, keyed: bool) -> None:
    await world.prepare(cooldown_ms=600_000, source_keyed=keyed)
    oracle = Oracle()
    await have_rooms(world, oracle)
    await world.abort(Heartbeat(7, "aborted", now_ms()))
    async with world.producer() as producer:
        await producer.send_and_wait(world.topic, b"no heartbeat", b"7:x")
        if keyed:
            misplaced = encode(Heartbeat(7, "5", now_ms(), "misplaced"))
            await producer.send_and_wait(world.topic, misplaced, b"7:6")
    old = world.settings.app_id
    # More partitions, which an id that is in use cannot have.
    world.set(app_id=f"{old}-2", **({} if keyed else {"partitions": 6}))
    replay = ("replay", "state")
    refused = await run_command(world, *replay, "--yes", code=1, app_id=old)
    assert "has been in use" in refused.err
    plan = await run_command(world, *replay, "--dry-run")
    for table in ("latest", "last_written_at"):
        assert f"topic {world.changelog(table)} is created" in plan.out
    assert set(await world.topics()) == {world.topic, world.dead_letter_topic}

    done = await run_command(world, *replay, "--yes")
    assert f"in the tables of {world.settings.app_id}: {ROOMS} rooms, from" in done.out
    assert ("2 records were refused" if keyed else "1 record was refused") in done.out
    newest = await world.newest_in(world.changelog("latest"))
    assert {(one["hotel_id"], one["room_id"]): one["ts_ms"] for one in newest.values()} == {
        room: one.ts_ms for room, one in oracle.newest.items()
    }

    async with world.table.connect() as connection:
        await connection.execute(f"TRUNCATE {world.table.table.quoted}")
    worker = await world.start_worker().ready()
    await oracle.matches(world.table)
    assert (await worker.metrics())["heartbeat_records_total"] == 0
    as_old = Heartbeat(7, "5", oracle.newest[7, "5"].ts_ms, "as old")
    async with world.producer() as producer:
        await producer.send_and_wait(world.topic, encode(as_old), b"7:5")
    await worker.until_metric("heartbeat_stale_total", 1)
    refused = await run_command(world, *replay, "--yes", code=1)
    assert "are running" in refused.err
    await worker.stopped()
    refused = await run_command(world, *replay, "--yes", code=1)
    assert "has been in use" in refused.err
