"""Entries that expire: their form, the clock that counts, and the index by time on disk."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heartbeat_stream.core.expiring import Clock, Entry, expires_of, version_of, wrap
from heartbeat_stream.streaming.store import PartitionStore, StoreOptions, place

OPTIONS = StoreOptions(8)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[PartitionStore]:
    store = PartitionStore(tmp_path / "seen-0", OPTIONS, "app seen 0/1", expires_of)
    yield store
    store.close()


def due(store: PartitionStore, before_ms: int, limit: int = 1000) -> list[bytes]:
    """All keys whose time is over, by slices."""
    found: list[bytes] = []
    at = None
    while True:
        one = store.due(before_ms, limit, at)
        found += [key for key, _ in one.entries]
        if one.at == place(before_ms):
            return found
        at = one.at


@given(st.integers(0, 2**62), st.integers(-(2**62), 2**62), st.binary(max_size=50))
def test_an_entry_is_read_as_it_was_written(version: int, expires: int, payload: bytes) -> None:
    value = wrap(version, expires, payload)
    assert Entry.read(value) == (version, expires, payload)
    assert (version_of(value), expires_of(value)) == (version, expires)


def test_the_clock_follows_the_records_and_never_runs_ahead() -> None:
    clock = Clock()
    for timestamp, wall, now in (
        (1_000, 9_000, 1_000),
        (800, 9_000, 1_000),  # late
        (2_000, 9_000, 2_000),
        (99_000, 9_000, 9_000),  # from the future
        (9_500, 9_600, 9_500),
        (500, 9_700, 9_500),  # a clock set back
    ):
        clock.see(timestamp, wall)
        assert clock.now_ms == now, (timestamp, wall)
    assert clock.expires_ms(500, 100) == 9_600
    assert clock.expires_ms(20_000, 100) == 20_100


def test_what_is_due_comes_in_the_order_of_its_time(store: PartitionStore) -> None:
    times = {b"k%03d" % number: 1_000 + 10 * number for number in range(300)}
    entries = [(key, wrap(1, at, b"x")) for key, at in times.items()]
    random.Random(1).shuffle(entries)
    store.write(entries)
    first, second, third = (
        {key for key, at in times.items() if at // 1_000 == second} for second in (1, 2, 3)
    )
    assert due(store, 1_990) == []  # those of a second go together, the last one's time decides
    assert set(due(store, 1_991, limit=7)) == first
    assert set(due(store, 3_000, limit=7)) == first | second
    every = due(store, 9_999, limit=1)
    assert [set(every[:100]), set(every[100:200]), set(every[200:])] == [first, second, third]
    # The index is nobody's business: the table holds its own keys alone.
    assert dict(store.scan()) == dict(entries)


def test_an_entry_that_was_prolonged_is_due_at_its_new_time(store: PartitionStore) -> None:
    store.write([(b"a", wrap(1, 100, b"")), (b"b", wrap(1, 100, b""))])
    store.write([(b"a", wrap(2, 500, b""))])
    assert due(store, 200) == [b"b"]
    assert due(store, 501) == [b"b", b"a"]


def test_what_has_left_the_table_has_left_the_index(store: PartitionStore) -> None:
    store.write([(b"a", wrap(1, 100, b"")), (b"b", wrap(1, 200, b""))])
    store.write([(b"a", None), (b"c", None)])
    assert due(store, 999) == [b"b"]
    store.write([(b"a", wrap(3, 300, b""))])
    assert due(store, 999) == [b"b", b"a"]


def test_the_index_is_there_after_a_restart(tmp_path: Path) -> None:
    for number in range(2):
        store = PartitionStore(tmp_path / "seen-0", OPTIONS, "app seen 0/1", expires_of)
        assert due(store, 999) == [b"a"] * number
        store.write([(b"a", wrap(1, 100, b""))])
        store.close()


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.none() | st.integers(0, 50)), max_size=60),
    st.integers(0, 60),
)
def test_the_index_is_what_a_look_at_everything_says(
    tmp_path_factory: pytest.TempPathFactory,
    changes: list[tuple[int, int | None]],
    before: int,
) -> None:
    path = tmp_path_factory.mktemp("index") / "seen-0"
    store = PartitionStore(path, OPTIONS, "app seen 0/1", expires_of)
    held: dict[bytes, int] = {}
    for number, at in changes:
        key = b"k%d" % number
        store.write([(key, None if at is None else wrap(1, at, b""))])
        if at is None:
            held.pop(key, None)
        else:
            held[key] = at
    expected = {key for key, at in held.items() if at < before}
    assert set(due(store, before, limit=3)) == expected
    for key in held:
        store.write([(key, None)])
    assert due(store, 60) == []
    store.close()


def test_a_row_of_the_index_goes_once_all_of_it_has_left(store: PartitionStore) -> None:
    def rows() -> int:
        keys = cast("list[bytes]", list(store._db.keys(from_key=b"\0expires")))
        return sum(key < b"\0f" for key in keys)

    store.write([(b"%d" % number, wrap(1, number, b"")) for number in range(3)])
    store.write([(b"1", wrap(2, 5_000, b""))])
    assert rows() == 2
    assert set(due(store, 100)) == {b"0", b"2"}  # they have not left yet
    store.write([(b"0", None), (b"2", None)])
    assert rows() == 2
    assert due(store, 100) == []
    assert rows() == 1
    store.write([(b"1", None)])
    assert due(store, 9_999) == []
    assert rows() == 0
