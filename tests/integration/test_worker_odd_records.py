"""Records that are no heartbeats, between those that are: nobody stops for them."""

import pytest

from heartbeat_stream.core.heartbeat import Heartbeat, room_key
from tests.support.oracle import Oracle, now_ms
from tests.support.world import World, encode

#: A byte-order mark alone, cut JSON, other encodings, a long number, nesting without an end.
BROKEN = [b"\xef\xbb\xbf", b'{"hotel_id":7', b"\xff\xfe{", b"\x80\x81", b"9" * 5_000, b"[" * 5_000]


async def outcome(
    world: World, records: list[tuple[bytes | None, bytes | None]]
) -> dict[str, float]:
    """Send these to one partition, wait until they are worked on; the figures of the worker."""
    worker = await world.start_worker().ready()
    async with world.producer() as producer:
        for key, value in records:
            await producer.send_and_wait(world.topic, value, key=key, partition=0)
    await worker.until_metric("heartbeat_records_total", len(records))
    for probe in ("live", "ready"):
        assert (await worker.get(f"/health/{probe}"))[0] == 200
    assert "Traceback" not in worker.log_text()
    await world.no_lag()
    return await worker.metrics()


def good(number: int) -> Heartbeat:
    return Heartbeat(7, f"{number}", now_ms(), "good", 1)


def keyed(heartbeat: Heartbeat) -> tuple[bytes | None, bytes | None]:
    return room_key(heartbeat.hotel_id, heartbeat.room_id), encode(heartbeat)


async def test_null_values_and_null_keys(world: World) -> None:
    await world.prepare()
    oracle, heartbeats = Oracle(), [good(number) for number in range(3)]
    oracle.accept(heartbeats)
    first, second, third = heartbeats
    records = [keyed(first), (b"7:0", None), (None, encode(second)), keyed(third)]
    figures = await outcome(world, records)
    await oracle.matches(world.table)
    assert figures["heartbeat_tombstones_total"] == 1
    assert await world.dead_letters() == []


@pytest.mark.parametrize("source_keyed", [False, True], ids=["unkeyed", "keyed"])
async def test_six_broken_records_between_good_ones(world: World, source_keyed: bool) -> None:
    await world.prepare(source_keyed=source_keyed, partitions=1)
    oracle, heartbeats = Oracle(), [good(number) for number in range(len(BROKEN) + 1)]
    oracle.accept(heartbeats)
    records = [keyed(heartbeats[0])]
    for broken, heartbeat in zip(BROKEN, heartbeats[1:], strict=True):
        records += [(b"7:broken", broken), keyed(heartbeat)]
    figures = await outcome(world, records)
    await oracle.matches(world.table)
    assert figures["heartbeat_dead_letters_total"] == len(BROKEN)
    assert [letter.value for letter in await world.dead_letters()] == BROKEN
