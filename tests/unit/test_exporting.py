"""Rooms in files: what is written where, and what is left when it fails."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from heartbeat_stream.core.room import Stored, Written
from heartbeat_stream.recovery.errors import RecoveryError
from heartbeat_stream.recovery.exporting import (
    COLUMNS,
    FORMATS,
    Record,
    as_record,
    open_export,
)
from heartbeat_stream.recovery.listing import Choice
from heartbeat_stream.recovery.tables import RoomState

STORED = Stored(7, "大会议室,\n1", 2_000, None, -1, 3, 4, 1_999)
WRITTEN = as_record(RoomState(b"7:x", STORED, Written(2_500, 2_000)))
PENDING = as_record(RoomState(b"7:x", STORED, Written(1_500, 1_000)))
NEW = as_record(RoomState(b"7:x", STORED, None))


def test_a_record_has_the_columns_in_their_order() -> None:
    assert tuple(WRITTEN) == COLUMNS
    assert list(WRITTEN.values()) == [7, "大会议室,\n1", None, 2_000, -1, 3, 4, 1_999, 2_500, 2_000]
    assert (NEW["written_at"], NEW["written_ts_ms"]) == (None, None)


def test_what_is_chosen() -> None:
    rooms = [WRITTEN, PENDING, NEW]
    assert list(filter(Choice().holds, rooms)) == rooms
    assert list(filter(Choice(pending=True).holds, rooms)) == [PENDING, NEW]
    assert list(filter(Choice(hotel=7).holds, rooms)) == rooms
    assert list(filter(Choice(hotel=0).holds, rooms)) == []


def test_csv(tmp_path: Path) -> None:
    with open_export("csv", tmp_path / "rooms") as write:
        assert write([WRITTEN]) == 1
        assert write([NEW]) == 1
    assert (tmp_path / "rooms").read_bytes().decode() == (
        ",".join(COLUMNS) + "\r\n"
        '7,"大会议室,\n1",,2000,-1,3,4,1999,2500,2000\r\n'
        '7,"大会议室,\n1",,2000,-1,3,4,1999,,\r\n'
    )


def _rooms_that_end_early() -> Iterator[Record]:
    yield WRITTEN
    raise KeyError


@pytest.mark.parametrize("form", FORMATS)
def test_a_file_is_there_when_it_is_whole(form: str, tmp_path: Path) -> None:
    path = tmp_path / "rooms"
    path.write_text("of yesterday")
    with pytest.raises(KeyError), open_export(form, path) as write:
        write(_rooms_that_end_early())
    assert path.read_text() == "of yesterday"
    assert list(tmp_path.iterdir()) == [path]
    with open_export(form, path) as write:
        assert write(iter([WRITTEN] * 3)) == 3
        assert path.read_text() == "of yesterday"
    assert path.read_bytes() != b"of yesterday"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("form", FORMATS)
def test_a_pipe_is_written_into_and_not_replaced(form: str, tmp_path: Path) -> None:
    """As /dev/stdout, which a file in its place would take from everybody."""
    path, read = tmp_path / "pipe", list[bytes]()
    os.mkfifo(path)
    reader = Thread(target=lambda: read.append(path.read_bytes()), daemon=True)
    reader.start()
    with open_export(form, path) as write:
        assert write([WRITTEN]) == 1
    reader.join(10)
    assert path.is_fifo()
    assert list(tmp_path.iterdir()) == [path]
    with open_export(form, tmp_path / "file") as write:
        write([WRITTEN])
    assert read == [(tmp_path / "file").read_bytes()]


def test_a_link_leads_to_the_file_afterwards_too(tmp_path: Path) -> None:
    link, file = tmp_path / "link", tmp_path / "file"
    link.symlink_to(file)
    file.touch()
    with open_export("jsonl", link) as write:
        write([WRITTEN])
    assert link.is_symlink()
    assert file.read_bytes().startswith(b'{"hotel_id":7')


def test_two_processes_do_not_write_into_one_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rooms"
    with open_export("jsonl", path) as write:
        write([WRITTEN])
        monkeypatch.setattr(os, "getpid", lambda: 1)
        with open_export("jsonl", path) as write_other:
            write_other([NEW])
        assert path.read_bytes().count(b"\n") == 1
        write([WRITTEN])
    assert path.read_bytes().count(b"\n") == 2
    assert list(tmp_path.iterdir()) == [path]


def test_parquet_without_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with (
        pytest.raises(RecoveryError, match=r'pip install "heartbeat-stream\[parquet\]"'),
        open_export("parquet", tmp_path / "rooms"),
    ):
        pytest.fail("there is no pyarrow")
    assert list(tmp_path.iterdir()) == []


def test_where_nobody_may_write(tmp_path: Path) -> None:
    with (
        pytest.raises(RecoveryError, match=r"cannot write .*: No such file or directory"),
        open_export("csv", tmp_path / "nowhere" / "rooms"),
    ):
        pytest.fail("there is no such directory")
