"""The local copy of a changelog partition: what it gives back, and what it does when it cannot."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rocksdict import Options, Rdict

from heartbeat_stream.streaming.store import (
    PartitionStore,
    Position,
    StoreDamaged,
    StoreError,
    StoreOptions,
)
from tests.support.damage import DAMAGES, Damage, garbage_in_log, move_into_ssts

OPTIONS = StoreOptions(8)
POSITION = Position(4711, 1_700_000_000_000)
#: More than a slice, and several blocks of a file.
KEYS = [b"7:%05d" % number for number in range(5_000)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "latest-0"


def opened(path: Path, identity: str = "app latest 0/4") -> PartitionStore:
    return PartitionStore(path, OPTIONS, identity)


def filled(path: Path) -> dict[bytes, bytes]:
    """A closed store with some thousand keys, and what it holds."""
    noise = random.Random(1)
    content = {key: noise.randbytes(40) for key in KEYS}
    store = opened(path)
    store.write(list(content.items()), POSITION)
    store.close()
    return content


def test_what_was_written_is_there_when_it_is_opened_again(path: Path) -> None:
    content = filled(path)
    store = opened(path)
    assert store.position == POSITION
    assert not store.empty
    assert dict(store.scan()) == content
    assert next(store.scan(after=KEYS[10])) == (KEYS[11], content[KEYS[11]])
    assert next(store.scan(after=b"7:00010x"))[0] == KEYS[11]
    assert [key for key, _ in store.scan()] == KEYS
    assert store.get_many([KEYS[3], b"unknown"]) == [content[KEYS[3]], None]
    store.write([(KEYS[3], None)])
    assert store.get(KEYS[3]) is None
    store.close()


@pytest.mark.parametrize("count", [0, 1, 1_999, 2_000, 2_001, 4_000, 4_001])
def test_a_scan_of_any_number_of_keys(path: Path, count: int) -> None:
    store = opened(path)
    store.write([(key, b"") for key in KEYS[:count]])
    assert [key for key, _ in store.scan()] == KEYS[:count]
    assert [key for key, _ in store.scan(after=KEYS[0])] == KEYS[1:count]
    store.close()


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: str(damage.__name__))
def test_damage_is_never_taken_for_data(
    path: Path, damage: Damage, caplog: pytest.LogCaptureFixture
) -> None:
    content = filled(path)
    move_into_ssts(path)
    damage(path)
    store = opened(path)
    try:
        found = dict(store.scan())
    except StoreDamaged as error:
        assert (error.store, str(path) in str(error)) == (store, True)  # noqa: PT017
        del error  # its traceback would keep the database open
        store.discard("a test says so")
        found = dict(store.scan())
    if damage is garbage_in_log:
        # What the log held was there once more.
        assert (found, store.position) == (content, POSITION)
        return
    assert found == {}
    assert (store.position, store.empty) == (None, True)
    assert f"local state in {path} cannot be used" in caplog.text
    # It is as good as new.
    store.write([(b"7:101", b"new")], Position(1, 2))
    store.close()
    store = opened(path)
    assert (dict(store.scan()), store.position) == ({b"7:101": b"new"}, Position(1, 2))
    store.close()


def test_what_was_found_damaged_while_it_was_used_is_discarded_by_the_next_start(
    path: Path,
) -> None:
    filled(path)
    move_into_ssts(path)
    largest = max(path.glob("*.sst"), key=lambda sst: sst.stat().st_size)
    with largest.open("r+b") as file:
        file.seek(largest.stat().st_size * 7 // 10)  # beyond what an opening reads
        file.write(random.Random(5).randbytes(64))
    store = opened(path)
    assert store.position == POSITION
    with pytest.raises(StoreDamaged):
        store.get_many(KEYS)
    store.close()
    store = opened(path)
    assert (store.position, store.empty) == (None, True)
    store.close()
    store = opened(path)
    assert list(path.parent.iterdir()) == [path]
    store.close()


@pytest.mark.parametrize(
    "identity", ["app latest 0/5", "app latest 1/4", "app last_written_at 0/4", "other latest 0/4"]
)
def test_the_state_of_somebody_else_is_discarded(path: Path, identity: str) -> None:
    filled(path)
    store = opened(path, identity)
    assert (dict(store.scan()), store.position) == ({}, None)
    store.close()


def test_a_copy_that_has_not_got_a_position_yet_is_kept(path: Path) -> None:
    store = opened(path)
    store.write([(b"7:101", b"value")])
    store.close()
    store = opened(path)
    assert (dict(store.scan()), store.position) == ({b"7:101": b"value"}, None)
    store.close()


def test_a_file_in_the_way_is_an_error_that_names_it(path: Path) -> None:
    path.write_text("in the way")
    with pytest.raises(StoreError, match=str(path)):
        opened(path)
    assert path.read_text() == "in the way"


def test_while_somebody_has_it_open_nothing_is_discarded(path: Path) -> None:
    filled(path)
    other = Rdict(str(path), options=Options(raw_mode=True))
    with pytest.raises(StoreError, match="lock"):
        opened(path)
    other.close()
    store = opened(path)
    assert store.position == POSITION
    store.close()


def test_all_share_one_block_cache_also_after_a_restart(tmp_path: Path) -> None:
    options = StoreOptions(cache_mb=3)
    for _ in range(2):
        stores = [PartitionStore(tmp_path / name, options, name) for name in ("one", "two")]
        for store in stores:
            capacity = store._db.property_int_value("rocksdb.block-cache-capacity")
            assert capacity == 3 * 1024 * 1024
            store.close()


@settings(max_examples=30)
@given(
    keys=st.sets(
        st.builds(
            lambda start, end: f"{start}{end}".encode(),
            st.sampled_from(["7:", "7:", "8:", "7", "6", "9", "77:"]),
            st.text("7:8a中", max_size=3),
        ),
        max_size=30,
    ),
    prefix=st.sampled_from([b"7:", b"8:", b"7"]),
    after=st.text("7:8a中", max_size=5).map(str.encode),
    known=st.integers(0, 15),
    limit=st.integers(1, 8),
)
def test_a_range_is_what_a_scan_would_find(
    keys: set[bytes], prefix: bytes, after: bytes, known: int, limit: int
) -> None:
    begun = sorted(key for key in keys if key.startswith(prefix))
    if known < len(begun):  # behind a key that is there, most of the time
        after = begun[known]
    with tempfile.TemporaryDirectory() as place:
        store = opened(Path(place) / "latest-0")
        store.write([(key, key[::-1]) for key in keys], POSITION)
        expected = [
            (key, value) for key, value in store.scan() if key.startswith(prefix) and key > after
        ]
        assert store.range(prefix, after, limit) == expected[:limit]
        store.close()
