"""What a job remembers of a partition: seen at once, durable later, gone in time, bounded."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from heartbeat_stream.core.expiring import expires_of, version_of, wrap
from heartbeat_stream.jobs.memory import Memory
from heartbeat_stream.settings import Settings
from heartbeat_stream.streaming.changelog import VERSION_HEADER
from heartbeat_stream.streaming.faust_app import make_app
from heartbeat_stream.streaming.producer import OutRecord
from heartbeat_stream.streaming.store import PartitionStore
from heartbeat_stream.streaming.tables import StateTable

LIFETIME_MS = 10_000


@pytest.fixture
async def table(tmp_path: Path) -> AsyncIterator[StateTable]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        app = make_app(Settings(app_id="memory"), tmp_path, listening)
        table = app.state_table("seen", version_of, 1, expires_of)
        table.store.open(0)
        yield table
        table.store.close_all()


def put(memory: Memory, key: bytes, at_ms: int, version: int = 0) -> None:
    memory.clock.see(at_ms, at_ms)
    memory.put(key, version, memory.clock.expires_ms(at_ms, LIFETIME_MS), b"%d" % at_ms)


def checkpoint(memory: Memory) -> list[OutRecord]:
    """What a checkpoint does with a partition; the records of its changelog."""
    records = [one for delta in memory.deltas() for one in delta.encode(0, len(delta))]
    store: PartitionStore = memory.table.store.partitions[0]
    store.write([(one.key or b"", one.value) for one in records])
    return records


async def test_a_twin_meets_what_is_not_durable_yet(table: StateTable) -> None:
    memory = Memory(table, 0)
    await memory.load(keep=False)
    assert memory.get(b"a") is None
    put(memory, b"a", 1_000)
    assert memory.get(b"a") is not None
    deltas = memory.deltas()  # a checkpoint begins: it is no longer new, and not on disk yet
    assert memory.get(b"a") is not None
    put(memory, b"b", 1_001)
    for delta in deltas:
        delta.encode(0, len(delta))
        delta.undo()  # and fails
    found = {one.key for one in checkpoint(memory)}
    assert found == {b"a", b"b"}
    checkpoint(memory)
    entry = memory.get(b"a")
    assert entry is not None
    assert entry.payload == b"1000"


async def test_what_is_not_durable_is_forgotten_with_the_partition(table: StateTable) -> None:
    memory = Memory(table, 0)
    await memory.load(keep=False)
    put(memory, b"durable", 1_000)
    checkpoint(memory)
    put(memory, b"not yet", 1_000)
    await memory.load(keep=True)  # somebody else wrote to the changelog: nothing is given up
    assert memory.get(b"not yet") is not None
    await memory.load(keep=False)
    assert memory.get(b"not yet") is None
    assert memory.get(b"durable") is not None


async def test_time_over_leaves_with_a_tombstone_of_its_version(table: StateTable) -> None:
    memory = Memory(table, 0)
    await memory.load(keep=False)
    put(memory, b"a", 1_000, version=7)
    checkpoint(memory)
    memory.clock.see(1_000 + LIFETIME_MS, 99_999_999)
    memory.sweep()
    assert checkpoint(memory) == []
    memory.clock.see(1_001 + LIFETIME_MS, 99_999_999)
    memory.sweep()
    assert checkpoint(memory) == [OutRecord(b"a", None, [(VERSION_HEADER, b"7")])]
    assert memory.get(b"a") is None
    assert memory.expired_count == 1


async def test_an_entry_that_comes_back_while_it_leaves_stays(table: StateTable) -> None:
    memory = Memory(table, 0)
    await memory.load(keep=False)
    put(memory, b"a", 1_000, version=1)
    checkpoint(memory)
    memory.clock.see(50_000, 99_999)
    memory.sweep()
    put(memory, b"a", 50_000, version=2)
    assert [one.value is None for one in checkpoint(memory)] == [False]
    entry = memory.get(b"a")
    assert entry is not None
    assert entry.version == 2


async def test_a_sweep_whose_checkpoint_fails_finds_the_same_again(table: StateTable) -> None:
    memory = Memory(table, 0)
    await memory.load(keep=False)
    put(memory, b"a", 1_000)
    checkpoint(memory)
    memory.clock.see(50_000, 99_999)
    memory.sweep()
    for delta in memory.deltas():
        delta.undo()
    memory.sweep()
    assert [one.value for one in checkpoint(memory)] == [None]


async def test_time_that_is_over_before_it_is_on_disk(table: StateTable) -> None:
    memory = Memory(table, 0)
    await memory.load(keep=False)
    # A backlog of hours between two checkpoints.
    for number in range(100):
        put(memory, b"%d" % number, number * LIFETIME_MS)
    checkpoint(memory)
    memory.sweep()  # those of the last checkpoint may still be on their way
    checkpoint(memory)
    memory.sweep()
    checkpoint(memory)
    assert len(list(memory.scan())) <= 2


async def test_state_levels_off_under_ever_new_keys(table: StateTable) -> None:
    memory = Memory(table, 0)
    await memory.load(keep=False)
    alive = []
    for second in range(60):
        for number in range(200):
            put(memory, b"%d-%d" % (second, number), second * 1_000)
        for _ in range(20):
            memory.sweep()
        checkpoint(memory)
        alive.append(len(list(memory.scan())))
    lifetime = LIFETIME_MS // 1_000
    assert max(alive[20:]) <= (lifetime + 3) * 200
    assert memory.put_count - memory.expired_count == alive[-1]
    keys = cast("list[bytes]", list(table.store.partitions[0]._db.keys(from_key=b"\0expires")))
    assert sum(key < b"\0f" for key in keys) <= lifetime + 5, "empty rows of the index go, too"


async def test_a_changelog_that_was_made_again_is_filled(table: StateTable) -> None:
    store = table.store.partitions[0]
    store.write([(b"a", wrap(1, 9_999, b"x")), (b"b", wrap(1, 9_999, b"y"))])
    memory = Memory(table, 0)
    store.news.overtaken.add(b"b")
    await memory.load(keep=False)
    assert [one.key for one in checkpoint(memory)] == [b"b"]
    store.news.republish = True
    await memory.load(keep=False)
    assert {one.key for one in checkpoint(memory)} == {b"a", b"b"}
