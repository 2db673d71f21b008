"""What reports of others said could go wrong with rows, in one worker's work."""

from __future__ import annotations

from heartbeat_stream.core.heartbeat import Heartbeat
from tests.support.oracle import Oracle, now_ms
from tests.support.wait import wait_until_async
from tests.support.world import World, encode


async def test_one_room_five_times_in_a_window_under_other_keys(world: World) -> None:
    """One statement never has a room twice, however its records were keyed."""
    await world.prepare(buffer_window_ms=1_000)
    worker, oracle = await world.start_worker().ready(), Oracle()
    now = now_ms()
    times = [now + 3, now, now + 4, now + 1, now + 2]
    async with world.producer() as producer:
        for number, ts_ms in enumerate(times):
            heartbeat = Heartbeat(7, "101", ts_ms, f"device {ts_ms - now}")
            await producer.send_and_wait(
                world.topic, encode(heartbeat), key=f"{number}".encode(), partition=number % 4
            )
            oracle.accept([heartbeat])
    await oracle.matches(world.table)
    assert [attempt.ts_ms for attempt in await world.table.attempts()] == [now + 4]
    await worker.stopped()


async def test_ten_thousand_rooms_in_one_flush(world: World) -> None:
    await world.prepare(buffer_window_ms=2_000, buffer_size_max=20_000)
    worker, oracle = await world.start_worker().ready(), Oracle()
    now = now_ms()
    rooms = [Heartbeat(number % 100, f"room {number}", now, "d" * 255) for number in range(10_000)]
    await world.send(rooms, oracle=oracle)
    await oracle.matches(world.table)
    assert len(await world.table.attempts()) == len(rooms)
    assert await world.dead_letters() == []
    await worker.stopped()


async def test_rows_that_another_writer_put_there(world: World) -> None:
    await world.prepare(buffer_window_ms=0, cooldown_ms=0)
    oracle, now = Oracle(), now_ms()
    theirs = [
        Heartbeat(7, "newer", now + 60_000, "theirs", 1),
        Heartbeat(7, "equal", now, "theirs"),
    ]
    oracle.accept(theirs)
    table = world.table.table.quoted
    async with world.table.connect() as connection:
        await connection.executemany(
            f"INSERT INTO {table} (hotel_id, room_id, ts_ms, device_id, status) "
            "VALUES ($1, $2, $3, $4, $5)",
            [(one.hotel_id, one.room_id, one.ts_ms, one.device_id, one.status) for one in theirs]
            + [(7, "older", now - 1, "theirs", 1), (7, "no time", None, "theirs", 1)],
        )
    ours = [Heartbeat(7, room, now, "ours", 2) for room in ("newer", "equal", "older", "no time")]
    for _ in range(2):  # the second time after a restart
        worker = await world.start_worker().ready()
        await world.send(ours, oracle=oracle)
        await world.send([Heartbeat(7, "last", now_ms())], oracle=oracle)
        await oracle.matches(world.table)
        await world.no_lag()
        assert (await worker.metrics())["heartbeat_rooms_pending"] == 0
        await worker.stopped()


async def test_the_same_payload_again_and_again_stays_fresh(world: World) -> None:
    cooldown_ms = 1_000
    await world.prepare(buffer_window_ms=200, cooldown_ms=cooldown_ms)
    worker, oracle = await world.start_worker().ready(), Oracle()

    async def five_times() -> bool:
        await world.send([Heartbeat(7, "101", now_ms(), "device", 1)], oracle=oracle)
        return len(await world.table.attempts()) >= 5

    await wait_until_async(five_times, 30, what="five writes", every=0.1)
    written = [attempt.ts_ms for attempt in await world.table.attempts()]
    assert written == sorted(set(written))
    await oracle.matches(world.table)
    await world.table.keeps_cooldown(cooldown_ms)
    await worker.stopped()
