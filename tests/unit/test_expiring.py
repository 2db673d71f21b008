"""Entries that expire: their form, the clock that counts, and the index by time on disk."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heartbeat_stream.core.expiring import Clock, Entry, expires_of, version_of, wrap
from heartbeat_stream.streaming.store import PartitionStore, StoreOptions

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
        if one.at == at or not one.entries:
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
    times = {b"k%03d" % number: 1_000 + number for number in range(300)}
    entries = [(key, wrap(1, at, b"x")) for key, at in times.items()]
    random.Random(1).shuffle(entries)
    store.write(entries)
    assert due(store, 1_000) == []
    assert due(store, 1_100, limit=7) == [b"k%03d" % number for number in range(100)]
    assert due(store, 9_999, limit=1) == sorted(times)
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
    expected = sorted((at, key) for key, at in held.items() if at < before)
    assert due(store, before, limit=3) == [key for _, key in expected]
    store.close()
