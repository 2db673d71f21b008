"""State beyond memory, and state that is forgotten."""

from heartbeat_stream.core.heartbeat import Heartbeat, room_key
from heartbeat_stream.local.postgres import PostgresServer
from tests.support.oracle import Oracle, now_ms
from tests.support.wait import wait_until_async
from tests.support.world import World

ROOMS = 5_000
CACHE = 100
TTL_MS = 4_000


async def test_state_larger_than_memory(world: World) -> None:
    await world.prepare(cache_rooms=CACHE, cooldown_ms=0, buffer_window_ms=100)
    worker = await world.start_worker().ready()
    now, oracle = now_ms(), Oracle()

    async def only_the_cache_is_left() -> bool:
        return (await worker.metrics())["heartbeat_rooms_in_memory"] <= CACHE

    def fleet(rooms: range, ts_ms: int, device: str) -> list[Heartbeat]:
        return [Heartbeat(room % 50, f"{room}", ts_ms, device) for room in rooms]

    await world.send(fleet(range(ROOMS), now, "first"), oracle=oracle)
    await oracle.matches(world.table)
    await worker.until(only_the_cache_is_left, what=f"at most {CACHE} rooms in memory")
    # Of rooms that memory has forgotten the table still knows what is old...
    stale = (await worker.metrics())["heartbeat_stale_total"]
    await world.send(fleet(range(ROOMS), now - 1_000, "older"), oracle=oracle)
    await world.send(fleet(range(ROOMS), now, "equal"), oracle=oracle)
    await worker.until_metric("heartbeat_stale_total", stale + 2 * ROOMS)
    await worker.until(only_the_cache_is_left, what=f"at most {CACHE} rooms in memory")
    # ...and what is newer.
    await world.send(fleet(range(0, ROOMS, 2), now + 1, "newer"), oracle=oracle)
    await oracle.matches(world.table)
    # A room asked for comes from disk.
    status, body = await worker.get("/table/latest/7:1057/")
    assert (status, b'"first"' in body) == (200, True), body
    await world.no_lag()
    attempts = await world.table.attempts()
    assert len(attempts) == len({(attempt.room, attempt.ts_ms) for attempt in attempts})
    assert len(attempts) == ROOMS + ROOMS // 2


async def test_silent_rooms_leave_the_tables_but_never_unwritten_ones(world: World) -> None:
    with PostgresServer() as server:
        await world.prepare(
            database_url=server.url, state_ttl_ms=TTL_MS, cooldown_ms=0, buffer_window_ms=100
        )
        worker = await world.start_worker().ready()
        oracle = Oracle()
        silent = [Heartbeat(1, f"{number}", now_ms()) for number in range(100)]
        await world.send(silent, oracle=oracle)
        await oracle.matches(world.table)
        server.stop()
        unwritten = [Heartbeat(2, f"{number}", now_ms()) for number in range(100)]
        await world.send(unwritten, oracle=oracle)
        await worker.until_metric("heartbeat_rooms_expired_total", len(silent))
        # The unwritten ones are silent for longer than that, too.
        await wait_until_async(lambda: now_ms() > unwritten[-1].ts_ms + TTL_MS)
        figures = await worker.metrics()
        await worker.until_metric(
            "heartbeat_checkpoints_total", figures["heartbeat_checkpoints_total"] + 4
        )
        for table in ("latest", "last_written_at"):
            entries = await world.newest_in(world.changelog(table))
            for heartbeat in silent:
                assert entries[room_key(1, heartbeat.room_id)] is None
        latest = await world.newest_in(world.changelog("latest"))
        for heartbeat in unwritten:
            assert latest[room_key(2, heartbeat.room_id)]["ts_ms"] == heartbeat.ts_ms
        for table in ("latest", "last_written_at"):
            assert (await worker.get(f"/table/{table}/1:5/"))[0] == 404
        assert (await worker.get("/table/latest/2:5/"))[0] == 200
        server.start()
        await oracle.matches(world.table)
        # A room that comes back is a new one.
        await world.send([Heartbeat(1, "5", now_ms(), "back")], oracle=oracle)
        await oracle.matches(world.table)
        await worker.until_metric("heartbeat_rooms_expired_total", 2 * len(silent))
        await worker.stopped()
