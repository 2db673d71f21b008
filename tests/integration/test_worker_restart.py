"""A worker that is killed: nothing accepted is lost, and the cooldown goes on."""

import shutil
import time

import pytest

from heartbeat_stream.core.heartbeat import Heartbeat
from heartbeat_stream.local.fleet import Fleet
from tests.support.oracle import Oracle, now_ms
from tests.support.world import World, load

COOLDOWN_MS = 3_000
ROOMS = 300


def lose_files(world: World, files: str) -> None:
    """What a restart finds of its local state: everything, or nothing."""
    if files == "removed":
        shutil.rmtree(world.settings.data_dir)


@pytest.mark.slow
@pytest.mark.parametrize(("files", "keyed"), [("kept", False), ("removed", True)])
async def test_kill_under_load(world: World, files: str, keyed: bool) -> None:
    await world.prepare(source_keyed=keyed, cooldown_ms=COOLDOWN_MS)
    worker = await world.start_worker().ready()
    # On the embedded broker a killed member is missed for long.
    kills = 2 if world.cluster.kind == "kafka" else 1
    fleet = Fleet(hotels=3, rooms_per_hotel=ROOMS // 3, keyed=keyed)
    async with load(world, fleet, rate=2_000) as running:
        for _ in range(kills):
            # In the midst of everything: records come in, rooms are written, checkpoints made.
            await worker.until_metric("heartbeat_rows_written_total", ROOMS)
            await worker.kill()
            lose_files(world, files)
            worker = await world.start_worker().ready()
        await worker.until_metric("heartbeat_rows_written_total", ROOMS)
    await running.oracle.matches(world.table)
    await world.table.keeps_cooldown(COOLDOWN_MS, crashes=kills)
    await world.no_lag()
    # Of the broken ones none is missing; one may have come twice.
    broken = {dead_letter_source(record.headers) for record in await world.dead_letters()}
    assert len(broken) == fleet.counts.broken.total() > 0


def dead_letter_source(headers: list[tuple[str, bytes]]) -> tuple[bytes, bytes]:
    found = dict(headers)
    return found["source-partition"], found["source-offset"]


@pytest.mark.slow
@pytest.mark.parametrize(("files", "keyed"), [("kept", True), ("removed", False)])
async def test_a_room_in_its_cooldown_is_not_written_early(
    world: World, files: str, keyed: bool
) -> None:
    # Longer than it takes to be back, or the cooldown would be over without anybody minding it.
    cooldown_ms = 15_000
    await world.prepare(source_keyed=keyed, cooldown_ms=cooldown_ms, buffer_window_ms=100)
    oracle = Oracle()
    worker = await world.start_worker().ready()
    first = [Heartbeat(7, f"{number}", now_ms(), "first") for number in range(200)]
    await world.send(first, oracle=oracle)
    figures = await worker.until_metric("heartbeat_rows_written_total", len(first))
    written_at = time.monotonic()
    # What was written is state from the next checkpoint on; the one under way may have begun.
    await worker.until_metric(
        "heartbeat_checkpoints_total", figures["heartbeat_checkpoints_total"] + 2
    )
    await worker.kill()
    lose_files(world, files)
    second = [Heartbeat(7, f"{number}", now_ms(), "second") for number in range(200)]
    await world.send(second, oracle=oracle)
    worker = await world.start_worker().ready()
    back_s = time.monotonic() - written_at
    assert back_s < cooldown_ms / 1000, "the worker was back too late for this to show anything"
    await oracle.matches(world.table)
    await world.table.keeps_cooldown(cooldown_ms, crashes=0)


async def test_a_written_record_is_not_written_again_by_an_equal_or_older_one(
    world: World,
) -> None:
    await world.prepare(cooldown_ms=0, buffer_window_ms=0, checkpoint_ms=100)
    oracle = Oracle()
    worker = await world.start_worker().ready()
    now = now_ms()
    await world.send([Heartbeat(7, "101", now, "newest", 1)], oracle=oracle)
    await oracle.matches(world.table)
    figures = await worker.metrics()
    await worker.until_metric(
        "heartbeat_checkpoints_total", figures["heartbeat_checkpoints_total"] + 2
    )
    await worker.kill()
    stale = [Heartbeat(7, "101", now, "equal", 2), Heartbeat(7, "101", now - 1, "older", 3)]
    await world.send(stale)
    worker = await world.start_worker().ready()
    # The room after it in the same partition shows that the stale ones have been worked on.
    await world.send([Heartbeat(7, "101", now - 2)], oracle=oracle)
    await world.no_lag()
    oracle.accept(stale)
    assert oracle.differences(await world.table.rows()) == []
    assert len(await world.table.attempts()) == 1


async def test_nothing_is_read_again_after_an_orderly_end(world: World) -> None:
    """Otherwise an operator would take a volume for lost."""
    await world.prepare(buffer_window_ms=0)
    oracle = Oracle()
    worker = await world.start_worker().ready()
    await world.send(
        [Heartbeat(7, f"{number}", now_ms(), None) for number in range(200)], oracle=oracle
    )
    await oracle.matches(world.table)
    await worker.stopped()
    worker = await world.start_worker().ready()
    assert (await worker.metrics())["heartbeat_recovered_records_total"] == 0
    shutil.rmtree(world.settings.data_dir / world.settings.app_id, ignore_errors=True)
    await worker.until_metric("heartbeat_ready", 1)  # of a directory that is gone, one figure is
    assert "heartbeat_data_free_bytes" not in await worker.metrics()
