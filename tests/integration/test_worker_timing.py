"""When a row is written: window, cooldown and the full buffer, on a real clock."""

from heartbeat_stream.core.heartbeat import Heartbeat
from tests.support.oracle import Oracle, now_ms
from tests.support.world import World

#: On its way through two topics, on a busy machine.
TRANSIT_MS = 3_000
#: Within which a due room is written.
PUNCTUAL_MS = 1_000


async def test_window_and_cooldown(world: World) -> None:
    window_ms, cooldown_ms = 700, 2_500
    await world.prepare(buffer_window_ms=window_ms, cooldown_ms=cooldown_ms)
    await world.start_worker().ready()
    sent_at = []
    oracle = Oracle()
    for number in range(3):
        sent_at.append(now_ms())
        await world.send([Heartbeat(7, "101", now_ms(), f"d{number}")], oracle=oracle)
        await oracle.matches(world.table)
    first, second, third = [attempt.at_ms for attempt in await world.table.attempts()]
    assert window_ms <= first - sent_at[0] <= window_ms + PUNCTUAL_MS + TRANSIT_MS
    for previous, at in ((first, second), (second, third)):
        assert cooldown_ms <= at - previous <= cooldown_ms + PUNCTUAL_MS + TRANSIT_MS


async def test_a_full_buffer_is_written_before_its_window_ends(world: World) -> None:
    window_ms, rooms = 600_000, 50
    await world.prepare(buffer_window_ms=window_ms, buffer_size_max=rooms, cooldown_ms=600_000)
    worker = await world.start_worker().ready()
    now, oracle = now_ms(), Oracle()
    few = [Heartbeat(7, f"{number}", now) for number in range(rooms - 1)]
    await world.send(few)
    await worker.until_metric("heartbeat_rooms_waiting", len(few))
    assert await world.table.rows() == {}
    oracle.accept(few)
    await world.send([Heartbeat(7, "the last", now)], oracle=oracle)
    await oracle.matches(world.table)
    # Rooms in their cooldown don't count: the buffer is empty, not full for ever.
    await world.send([Heartbeat(7, f"{number}", now + 1) for number in range(rooms)])
    await worker.until_metric("heartbeat_rooms_pending", rooms)
    await world.send([Heartbeat(8, "new", now)])
    await worker.until_metric("heartbeat_rooms_waiting", 1)
    assert oracle.differences(await world.table.rows()) == []
