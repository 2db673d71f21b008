"""Looking at rooms: what memory knows counts more than what the tables hold."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from heartbeat_stream.core.cooldown import Schedule
from heartbeat_stream.core.heartbeat import Heartbeat, room_key
from heartbeat_stream.core.latest import Candidate, Shard
from heartbeat_stream.core.room import Stored, Written
from heartbeat_stream.jobs.looking import Rooms, RoomState, hotel_prefix
from heartbeat_stream.streaming.store import PartitionStore, StoreOptions

NOW = 1_700_000_000_000
WINDOW, COOLDOWN = 5_000, 30_000
encode = msgspec.json.encode


class Place:
    """Two partitions with rooms 0 to 9 of hotel 7 in their tables, all of them written."""

    def __init__(self, directory: Path) -> None:
        self.schedule = Schedule(WINDOW, COOLDOWN, 1_000)
        self.shards = {number: Shard(number, self.schedule) for number in (0, 1)}
        options = StoreOptions(8)
        self.stores = {
            number: (
                PartitionStore(directory / f"latest-{number}", options, "x"),
                PartitionStore(directory / f"written-{number}", options, "x"),
            )
            for number in (0, 1)
        }
        self.owned = {0, 1}
        for number in range(10):
            self.put(number % 2, f"{number}", Written(NOW - 60_000, NOW - 60_000))
        self.rooms = Rooms(
            self.schedule, self.shards, self.stores.__getitem__, self.owned.__contains__
        )

    def put(self, partition: int, room_id: str, written: Written | None) -> None:
        key = room_key(7, room_id)
        latest, writes = self.stores[partition]
        stored = Stored(7, room_id, NOW - 60_000, "d", 1, 3, 4711, NOW - 60_000)
        latest.write([(key, encode(stored))])
        if written is not None:
            writes.write([(key, encode(written))])

    def newer(self, partition: int, room_id: str) -> None:
        """A heartbeat that no checkpoint has seen."""
        key = room_key(7, room_id)
        shard = self.shards[partition]
        room = self.rooms.find(partition, key)
        assert room is not None
        stored = Stored(7, room_id, room.ts_ms, "d", 1, 3, 4711, NOW - 60_000)
        written = Written(room.written_at, room.written_ts)
        shard.admit(
            key, (stored, written), Candidate(Heartbeat(7, room_id, NOW, "new", 2), 5, 4712), NOW
        )

    async def page(self, after: str = "", limit: int = 100) -> list[RoomState]:
        key = room_key(7, after) if after else b""
        return await self.rooms.page([0, 1], hotel_prefix(7), key, limit)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def ids(page: list[RoomState]) -> list[str]:
    return [one.newest.room_id for one in page]


async def test_a_page_is_in_order_out_of_all_partitions(place: Place) -> None:
    assert ids(await place.page()) == [f"{number}" for number in range(10)]
    assert ids(await place.page(limit=3)) == ["0", "1", "2"]
    assert ids(await place.page(after="2", limit=3)) == ["3", "4", "5"]
    assert ids(await place.page(after="9")) == []


async def test_what_memory_knows_is_shown(place: Place) -> None:
    place.newer(1, "3")
    page = await place.page()
    room = page[3]
    assert (room.newest.ts_ms, room.newest.device_id) == (NOW, "new")
    assert (room.state, room.due_at) == ("in its window", NOW + WINDOW)
    assert room.written == Written(NOW - 60_000, NOW - 60_000)
    assert (room.source_partition, room.source_offset) == (5, 4712)
    assert place.rooms.look(1, b"7:3") == room
    assert [one.state for one in page].count("at rest") == 9
    assert page[4].newest.ts_ms == NOW - 60_000


async def test_a_room_that_was_never_written(place: Place) -> None:
    place.put(0, "10", None)
    page = await place.page(after="1", limit=1)
    assert ids(page) == ["10"]
    assert page[0].written is None


async def test_a_partition_that_is_given_up_is_left_out(place: Place) -> None:
    place.owned.remove(0)
    assert ids(await place.page()) == ["1", "3", "5", "7", "9"]


def test_a_room_of_a_partition_that_is_not_here(place: Place) -> None:
    assert place.rooms.find(2, b"7:3") is None
    assert place.rooms.look(0, b"7:nobody") is None
