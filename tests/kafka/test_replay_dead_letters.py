"""`replay dead-letters`: each drill of docs/replay.md on it, and a command that is killed."""

from __future__ import annotations

import msgspec
import pytest
from aiokafka.structs import ConsumerRecord

from heartbeat_stream.core.heartbeat import Heartbeat
from tests.support.command import run_command, start_command
from tests.support.oracle import Oracle, now_ms
from tests.support.topic_reader import open_reader
from tests.support.wait import wait_until_async
from tests.support.world import World, encode

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

FIX = {"max_future_ms": 10_000_000_000}
REPLAY = ("replay", "dead-letters")


async def sent_again(world: World) -> list[ConsumerRecord]:
    """The records of the source that a replay has put there, as a worker sees them."""
    options = {"isolation_level": "read_committed"}
    async with open_reader(world.bootstrap_servers, world.topic, **options) as reader:
        await reader.ends()
        return [one for one in reader.records if "replayed-from" in dict(one.headers)]


async def have_dead_letters(world: World, values: list[bytes]) -> None:
    """Send these, none of which a worker takes, and have it make dead letters of them."""
    before = len(await world.dead_letters())
    async with world.producer() as producer:
        for number, value in enumerate(values):
            await producer.send(world.topic, value, key=b"device %d" % number, partition=1)
        await producer.flush()
    await world.no_lag()
    assert len(await world.dead_letters()) == before + len(values)


async def put_dead_letter(world: World, value: bytes, **headers: str) -> None:
    named = [(name.replace("_", "-"), text.encode()) for name, text in headers.items()]
    async with world.producer() as producer:
        await producer.send_and_wait(world.dead_letter_topic, value, partition=0, headers=named)


async def test_what_has_become_right_is_sent_once_and_the_rest_stays(world: World) -> None:
    await world.prepare(max_future_ms=60_000)
    ahead = [Heartbeat(7, f"{number}", now_ms() + 3_600_000, "ahead") for number in range(20)]
    worker = await world.start_worker().ready()
    await have_dead_letters(world, [encode(one) for one in ahead] + [b"{", b"[]"])
    source = {"source_topic": world.topic, "source_partition": "1", "source_offset": "0"}
    cut = encode(Heartbeat(7, "cut", now_ms()))
    await put_dead_letter(world, cut, reason="not-json", original_length="9999", **source)
    await put_dead_letter(world, cut, reason="not-json", **{**source, "source_topic": "another"})
    letters = len(await world.dead_letters())

    early = await run_command(world, *REPLAY, "--yes")
    assert "20  ts-too-new: is still no heartbeat, and stays" in early.out
    assert await sent_again(world) == []

    plan = await run_command(world, *REPLAY, "--dry-run", **FIX)
    for line in (
        "20  ts-too-new: goes to the source topic",
        "1  not-json: is still no heartbeat, and stays",
        "1  not-object: is still no heartbeat, and stays",
        "1  not-json: was cut, so it cannot be sent, and stays",
        "1  not-json: is of another topic, and stays",
    ):
        assert line in plan.out, plan
    assert await sent_again(world) == []
    other = await run_command(world, *REPLAY, "--dry-run", "--reason", "not-object", **FIX)
    assert "ts-too-new" not in other.out
    late = await run_command(world, *REPLAY, "--dry-run", "--since", "2030-01-01", **FIX)
    assert "none" in late.out

    await worker.stopped()
    worker = await world.start_worker(**FIX).ready()
    some = ("--reason", "ts-too-new", "--since", "1h", "--yes")
    done = await run_command(world, *REPLAY, *some, **FIX)
    assert "20  ts-too-new: sent to the source topic" in done.out
    oracle = Oracle()
    oracle.accept(ahead)
    await oracle.matches(world.table)
    again = await run_command(world, *REPLAY, "--yes", **FIX)
    assert "20  ts-too-new: was sent before" in again.out
    await world.no_lag()

    assert len(await world.dead_letters()) == letters
    replayed = await sent_again(world)
    assert [one.value for one in replayed] == [encode(one) for one in ahead]
    assert [one.key for one in replayed] == [b"device %d" % number for number in range(20)]
    places = {
        f"{one.topic}/{one.partition}/{one.offset}".encode() for one in await world.dead_letters()
    }
    assert {dict(one.headers)["replayed-from"] for one in replayed} <= places
    await worker.stopped()


async def test_one_source_record_is_sent_once_however_often_it_was_a_dead_letter(
    world: World,
) -> None:
    await world.prepare(max_future_ms=60_000)
    ahead = Heartbeat(7, "101", now_ms() + 3_600_000, "ahead")
    worker = await world.start_worker().ready()
    await have_dead_letters(world, [encode(ahead)])
    await worker.stopped()
    await run_command(world, "replay", "source", "--from", "earliest", "--yes")
    worker = await world.start_worker().ready()

    async def letters(count: int) -> None:
        async def there() -> bool:
            return len(await world.dead_letters()) == count

        await wait_until_async(there, 30, what=f"{count} dead letters")

    await letters(2)
    done = await run_command(world, *REPLAY, "--yes", **FIX)
    assert "1  ts-too-new: sent to the source topic" in done.out
    assert "1  ts-too-new: was sent before" in done.out
    # These workers refuse it still, since they do not run with that setting.
    await letters(3)
    done = await run_command(world, *REPLAY, "--yes", **FIX)
    assert "1  ts-too-new: came back after it had been sent, and stays" in done.out
    assert "do they run with these settings?" in done.out
    assert len(await sent_again(world)) == 1
    await worker.stopped()
    worker = await world.start_worker(**FIX).ready()
    await run_command(world, *REPLAY, "--again", "--yes", **FIX)
    oracle = Oracle()
    oracle.accept([ahead])
    await oracle.matches(world.table)
    await run_command(world, *REPLAY, "--again", "--yes", **FIX)
    assert len(await sent_again(world)) == 2
    await worker.stopped()


async def test_a_command_that_is_killed_sends_each_once(world: World) -> None:
    await world.prepare(max_future_ms=60_000)
    ahead = [Heartbeat(7, f"{number}", now_ms() + 3_600_000, "ahead") for number in range(8_000)]
    worker = await world.start_worker().ready()
    await have_dead_letters(world, [encode(one) for one in ahead])
    await worker.stopped()
    counts = []
    for part in (1, 3_000):
        process = await start_command(world, *REPLAY, "--yes", **FIX)

        async def has_sent(part: int = part) -> bool:
            counts.append(len(await all_of_the_source(world)) - len(ahead))
            return counts[-1] >= part

        await wait_until_async(has_sent, 60, what=f"{part} dead letters were sent again")
        process.kill()
        await process.wait()
    assert counts[-1] < len(ahead), "it was killed too late to tell"
    await run_command(world, *REPLAY, "--yes", **FIX)
    replayed = await sent_again(world)
    assert sorted(one.value for one in replayed) == sorted(encode(one) for one in ahead)
    worker = await world.start_worker(**FIX).ready()
    oracle = Oracle()
    oracle.accept(ahead)
    await oracle.matches(world.table)
    figures = await worker.metrics()
    assert figures["heartbeat_records_total"] == len(ahead)
    await worker.stopped()


async def all_of_the_source(world: World) -> list[ConsumerRecord]:
    """Those of transactions that have not ended, too."""
    async with open_reader(world.bootstrap_servers, world.topic) as reader:
        await reader.ends()
        return reader.records


async def test_rows_that_the_database_had_refused_are_written(world: World) -> None:
    """The workers know these heartbeats, so sent again they would change nothing."""
    await world.prepare()
    async with world.table.connect() as connection:
        table = world.table.table.quoted
        await connection.execute(f"ALTER TABLE {table} ADD CONSTRAINT c CHECK (status <> 13)")
        worker = await world.start_worker().ready()
        oracle = Oracle()
        heartbeats = [Heartbeat(7, f"{number}", now_ms(), status=number) for number in range(20)]
        await world.send(heartbeats)

        async def refused() -> bool:
            return len(await world.dead_letters()) == 1

        await wait_until_async(refused, 30, what="a dead letter")
        done = await run_command(world, *REPLAY, "--yes", code=1)
        assert "1  row-refused: is still refused by the database, and stays" in done.out
        assert "the database still refuses 1 row" in done.err
        await connection.execute(f"ALTER TABLE {table} DROP CONSTRAINT c")
    plan = await run_command(world, *REPLAY, "--reason", "row-refused", "--dry-run")
    assert "1  row-refused: goes to the database" in plan.out
    await run_command(world, *REPLAY, "--yes")
    oracle.accept(heartbeats)
    await oracle.matches(world.table)
    assert "was sent before" in (await run_command(world, *REPLAY, "--yes")).out
    assert await sent_again(world) == []
    (ledger,) = await ledger_of(world)
    assert msgspec.json.decode(ledger.value or b"") <= now_ms()
    await worker.stopped()


async def ledger_of(world: World) -> list[ConsumerRecord]:
    topic = f"{world.dead_letter_topic}.replayed"
    async with open_reader(world.bootstrap_servers, topic) as reader:
        await reader.ends()
        return reader.records


async def test_a_keyed_source_gets_them_where_their_rooms_are(world: World) -> None:
    await world.prepare(source_keyed=True, max_future_ms=60_000)
    ahead = [Heartbeat(7, f"{number}", now_ms() + 3_600_000) for number in range(20)]
    worker = await world.start_worker().ready()
    await world.send([*ahead, Heartbeat(7, "on time", now_ms())])
    await world.no_lag()
    await worker.stopped()
    await run_command(world, *REPLAY, "--yes", **FIX)
    worker = await world.start_worker(**FIX).ready()
    oracle = Oracle()
    oracle.accept(ahead)
    await world.no_lag()
    await worker.until_metric("heartbeat_rows_written_total", len(ahead))
    rows = await world.table.rows()
    assert {room: rows.get(room) for room in oracle.newest} == oracle.newest
    assert len(await world.dead_letters()) == len(ahead)
    await worker.stopped()
