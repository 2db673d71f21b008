"""`replay source`: each drill of docs/replay.md on it, as it stands there."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime

import pytest
from aiokafka.structs import TopicPartition

from heartbeat_stream.core.heartbeat import Heartbeat, room_key
from heartbeat_stream.core.latest import Candidate, encode_candidate
from heartbeat_stream.core.partition import partition_for
from heartbeat_stream.recovery.cluster import commit
from heartbeat_stream.recovery.errors import RecoveryError
from tests.support.command import run_command, start_command
from tests.support.oracle import Oracle, now_ms
from tests.support.topic_reader import read_topic
from tests.support.wait import wait_until_async
from tests.support.worker import Worker
from tests.support.world import World

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

ROOMS = 200


def rooms(prefix: str = "", count: int = ROOMS) -> list[Heartbeat]:
    return [Heartbeat(7, f"{prefix}{number}", now_ms(), "device") for number in range(count)]


async def written(world: World, worker: Worker, oracle: Oracle, new: list[Heartbeat]) -> None:
    """Send them, and wait until they are in the database and all offsets are committed."""
    await world.send(new, oracle=oracle)
    await oracle.matches(world.table)
    await world.no_lag()


async def test_over_intact_state_it_changes_nothing(world: World) -> None:
    await world.prepare()
    oracle = Oracle()
    worker = await world.start_worker().ready()
    await written(world, worker, oracle, rooms("before "))
    middle = await world.ends()
    since = datetime.fromtimestamp(now_ms() / 1000, UTC).isoformat()
    await written(world, worker, oracle, rooms("after "))
    ends = await world.ends()

    refused = await run_command(world, "replay", "source", "--from", "earliest", "--yes", code=1)
    assert f"http://127.0.0.1:{worker.port} on " in refused.err
    seen = await run_command(world, "replay", "source", "--from", "earliest", "--dry-run")
    assert f"it would be refused now: workers of {world.settings.app_id} are running" in seen.out
    assert "become dead letters again" in seen.out
    back = ("replay", "source", "--from", "2h", "--to", "3h", "--dry-run")
    assert "does not lie behind --from" in (await run_command(world, *back, code=1)).err
    nobody = ("replay", "source", "--from", "earliest", "--yes")
    unknown = await run_command(world, *nobody, code=1, app_id="nosuch")
    assert "the group nosuch has committed no offset" in unknown.err
    # One that is started between the look and the deed keeps its offsets: Kafka sees to it.
    with pytest.raises(RecoveryError, match="has been started meanwhile"):
        await commit(world.settings, {TopicPartition(world.topic, 0): 0})
    assert await world.committed() == ends
    await worker.stopped()

    plan = await run_command(world, "replay", "source", "--from", since, "--dry-run")
    for partition, end in ends.items():
        assert (
            f"partition {partition}: the committed offset {end} becomes {middle[partition]}, "
            f"{end - middle[partition]} records" in plan.out
        )
    assert "nothing of this changes a room or a row" in plan.out
    asked = await run_command(world, "replay", "source", "--from", since, code=1)
    assert "--yes" in asked.err
    assert await world.committed() == ends

    await run_command(world, "replay", "source", "--from", since, "--yes")
    assert await world.committed() == middle
    writes = len(await world.table.attempts())
    worker = await world.start_worker().ready()
    await worker.until_metric("heartbeat_stale_total", ROOMS)
    await world.no_lag()
    await oracle.matches(world.table)
    assert len(await world.table.attempts()) == writes

    await worker.stopped()
    await run_command(world, "replay", "source", "--from", "3", "--yes")
    assert await world.committed() == {partition: min(3, end) for partition, end in ends.items()}
    # It never goes ahead: what has not been read yet would be skipped.
    plan = await run_command(world, "replay", "source", "--from", "2030-01-01", "--yes")
    assert "the committed offset 3 stays" in plan.out
    assert await world.committed() == {partition: min(3, end) for partition, end in ends.items()}


@pytest.mark.parametrize("keyed", [False, True], ids=["unkeyed", "keyed"])
async def test_with_reset_state_nothing_of_before_is_left_anywhere(
    world: World, keyed: bool
) -> None:
    """A room whose clock was an hour ahead is unfrozen, whichever local files the workers have."""
    await world.prepare(source_keyed=keyed, max_future_ms=10_000_000_000)
    oracle = Oracle()
    frozen = [Heartbeat(7, "frozen", now_ms() + 3_600_000, "wrong clock")]
    first = await world.start_worker().ready()
    await written(world, first, oracle, frozen)
    start = (await world.ends())[partition_for(room_key(7, "frozen"), world.settings.partitions)]
    await first.stopped()
    elsewhere = world.directory / "elsewhere"
    second = await world.start_worker(data_dir=elsewhere).ready()
    before = rooms()
    await written(world, second, oracle, before)
    await second.stopped()
    if not keyed:  # what somebody forwarded, and nobody has taken in yet
        waiting = Candidate(Heartbeat(7, "frozen", now_ms() + 7_200_000), 0, 0)
        async with world.producer() as producer:
            await producer.send_and_wait(
                world.repartition_topic,
                encode_candidate(waiting),
                b"7:frozen",
                partition_for(b"7:frozen", world.settings.partitions),
            )

    # Everything behind the wrong record, of each partition.
    arguments = ["replay", "source", "--from", str(start), "--reset-state"]
    plan = await run_command(world, *arguments, "--dry-run")
    assert f"the tables are emptied: {ROOMS + 1} rooms" in plan.out
    assert ("what waits there is passed over, 1 record at most" in plan.out) is not keyed
    done = await run_command(world, *arguments, "--yes")
    assert f"{ROOMS + 1} rooms were removed" in done.out
    for table in ("latest", "last_written_at"):
        assert set((await world.newest_in(world.changelog(table))).values()) == {None}
    await forget_the_row(world, frozen[0])
    oracle.newest.pop((7, "frozen"))

    writes = len(await world.table.attempts())
    for directory in (world.settings.data_dir, elsewhere):
        worker = await world.start_worker(data_dir=directory).ready()
        await world.no_lag()
        status, _ = await worker.get("/table/latest/7:frozen/")
        assert status == 404
        await worker.stopped()
    worker = await world.start_worker().ready()
    await written(world, worker, oracle, [Heartbeat(7, "frozen", now_ms(), "right clock")])
    # The other rooms count as new once more: each was sent to the database again, and turned away.
    assert len(await world.table.attempts()) <= writes + ROOMS + 1
    await world.table.never_went_back()
    await worker.stopped()


async def forget_the_row(world: World, row: Heartbeat) -> None:
    async with world.table.connect() as connection:
        await connection.execute(
            f"DELETE FROM {world.table.table.quoted} WHERE room_id = $1", row.room_id
        )


async def test_what_would_be_lost_is_said_before(world: World) -> None:
    """A heartbeat that is not in the database, and lies before the point to start from."""
    await world.prepare(cooldown_ms=600_000)
    oracle = Oracle()
    worker = await world.start_worker().ready()
    await written(world, worker, oracle, rooms(count=50))
    pending = [Heartbeat(7, "0", now_ms(), "cooling")]
    await world.send(pending)
    await world.no_lag()
    await worker.stopped()
    for start, lost in (("earliest", False), ("1h", False), ("999999999", True)):
        plan = await run_command(
            world, "replay", "source", "--from", start, "--reset-state", "--dry-run"
        )
        assert ("of 1 room among them the newest heartbeat" in plan.out) is lost, start
    # What it tells to do first does help.
    await run_command(world, "replay", "rows", "--yes")
    oracle.accept(pending)
    await oracle.matches(world.table)


async def test_a_range_is_sent_again_while_workers_run(world: World) -> None:
    await world.prepare()
    oracle = Oracle()
    worker = await world.start_worker().ready()
    await written(world, worker, oracle, rooms("before "))
    start = now_ms()
    await written(world, worker, oracle, rooms("within "))
    await world.abort(Heartbeat(7, "aborted", now_ms()))
    end = now_ms()
    await written(world, worker, oracle, rooms("after "))
    ends = await world.ends()
    arguments = ["replay", "source", "--from", iso(start), "--to", iso(end)]
    plan = await run_command(world, *arguments, "--dry-run")
    # One has an offset and was aborted; so has its marker, where that was there before `end`.
    assert any(f"{ROOMS + more} records at most" in plan.out for more in (1, 2))
    assert await world.ends() == ends
    done = await run_command(world, *arguments, "--yes")
    assert f"{ROOMS} records were sent to {world.topic} again" in done.out
    await worker.until_metric("heartbeat_stale_total", ROOMS)
    await world.no_lag()
    await oracle.matches(world.table)
    assert len(await world.table.attempts()) == 3 * ROOMS

    originals = {}
    copies = 0
    for record in await read_topic(world.bootstrap_servers, world.topic):
        traced = dict(record.headers).get("replayed-from")
        if traced is None:
            place = f"{world.topic}/{record.partition}/{record.offset}"
            originals[place] = (record.partition, record.key, record.value)
        else:
            copies += 1
            original = originals[traced.decode()]
            assert original == (record.partition, record.key, record.value)
            assert b"within " in record.value
    assert copies == ROOMS

    # With the tables emptied only this range is in them afterwards.
    refused = await run_command(world, *arguments, "--reset-state", "--yes", code=1)
    assert "are running" in refused.err
    await worker.stopped()
    await run_command(world, *arguments, "--reset-state", "--yes")
    worker = await world.start_worker().ready()
    await world.no_lag()
    assert (await worker.get("/table/latest/7:within%200/"))[0] == 200
    assert (await worker.get("/table/latest/7:before%200/"))[0] == 404
    await worker.stopped()
    await oracle.matches(world.table)


def iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat()


async def test_errors_are_a_line(world: World) -> None:
    await world.prepare()
    missing = await run_command(
        world, "replay", "source", "--from", "earliest", "--yes", code=1, topic="nowhere"
    )
    assert "there is no topic nowhere" in missing.err
    wrong = await run_command(world, "replay", "source", "--from", "tomorrow", code=2)
    assert "'tomorrow' is wrong: want earliest, an offset" in wrong.err


async def test_it_is_cut_off_while_it_empties_the_tables(world: World) -> None:
    """Workers that are started then have what is left, and take in the rest again."""
    await world.prepare(cooldown_ms=0, buffer_window_ms=0)
    oracle = Oracle()
    worker = await world.start_worker().ready()
    await written(world, worker, oracle, rooms(count=50_000))
    await worker.stopped()
    changelog = world.changelog("last_written_at")  # emptied before the other one
    ends = await world.ends(changelog)
    process = await start_command(
        world, "replay", "source", "--from", "earliest", "--reset-state", "--yes"
    )

    async def has_begun() -> bool:
        return await world.ends(changelog) != ends

    await wait_until_async(has_begun, 60, what="tombstones in the changelog")
    with suppress(ProcessLookupError):  # a fast machine has emptied them all by now: right, too
        process.kill()
    await process.wait()
    assert await world.committed() == dict.fromkeys(ends, 0)
    worker = await world.start_worker().ready()
    await world.no_lag()
    left = await world.newest_in(world.changelog("latest"))
    assert {key for key, value in left.items() if value} == {
        room_key(*room) for room in oracle.newest
    }
    await oracle.matches(world.table)
    await worker.stopped()
    again = await run_command(
        world, "replay", "source", "--from", "earliest", "--reset-state", "--yes"
    )
    assert "50,000 rooms were removed" in again.out
