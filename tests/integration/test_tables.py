"""Tables as Faust sees them: read like any other, written by nobody but a checkpoint."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from heartbeat_stream.core.partition import partition_for
from heartbeat_stream.settings import Settings
from heartbeat_stream.streaming.faust_app import EngineApp, make_app
from heartbeat_stream.streaming.store import Position
from heartbeat_stream.streaming.tables import StateTable, TableStore

PARTITIONS = 4
ENTRIES = {f"7:{number}".encode(): b"%d" % number for number in range(100)}


@pytest.fixture
def app(tmp_path: Path) -> Iterator[EngineApp]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        yield make_app(Settings(app_id="tables"), tmp_path, listening)


@pytest.fixture
def table(app: EngineApp) -> Iterator[StateTable]:
    table = app.state_table("latest", lambda value: int(value), PARTITIONS)
    yield table
    table.store.close_all()


def fill(table: StateTable) -> None:
    for partition in range(PARTITIONS):
        changes = [
            (key, value)
            for key, value in ENTRIES.items()
            if partition_for(key, PARTITIONS) == partition
        ]
        table.store.open(partition).write(changes, Position(partition + 10, 1))


async def test_faust_reads_it(app: EngineApp, table: StateTable) -> None:
    assert isinstance(table.data, TableStore)
    assert app.tables["latest"] is table
    fill(table)
    assert table[b"7:42"] == b"42"
    assert table.get(b"7:nobody") is None
    assert b"7:42" in table
    assert b"7:nobody" not in table
    assert dict(table.items()) == ENTRIES
    assert len(table) == len(ENTRIES)
    assert sorted(table.keys()) == sorted(ENTRIES)
    assert sorted(table.values()) == sorted(ENTRIES.values())


async def test_a_partition_that_is_not_here_holds_nothing(table: StateTable) -> None:
    fill(table)
    gone = partition_for(b"7:42", PARTITIONS)
    table.store.close(gone)
    assert table.get(b"7:42") is None
    here = {key for key in ENTRIES if partition_for(key, PARTITIONS) != gone}
    assert set(table.keys()) == here


async def test_only_checkpoints_write(table: StateTable) -> None:
    fill(table)
    with pytest.raises(TypeError, match="written by checkpoints only"):
        table.data[b"7:1"] = b"2"
    with pytest.raises(TypeError, match="written by checkpoints only"):
        del table.data[b"7:1"]
    with pytest.raises(TypeError, match="written by checkpoints only"):
        table.data.clear()
    assert dict(table.items()) == ENTRIES


async def test_the_changelog_is_named_as_faust_names_it(table: StateTable) -> None:
    assert table.changelog == "tables-latest-changelog"
    assert table.changelog_topic.get_topic_name() == table.changelog
