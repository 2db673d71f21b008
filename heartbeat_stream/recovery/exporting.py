"""`state list` and `state export`: the rooms of the tables in a form that other programs read."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any

import msgspec

from heartbeat_stream.recovery.errors import RecoveryError
from heartbeat_stream.recovery.tables import RoomState

__all__ = ["COLUMNS", "FORMATS", "Record", "WriteRooms", "as_record", "open_export"]

#: What there is of a room, in this order, in every form: texts are the two ids that end in them.
COLUMNS = (
    "hotel_id",
    "room_id",
    "device_id",
    "ts_ms",
    "status",
    "source_partition",
    "source_offset",
    "arrived_at",
    "written_at",
    "written_ts_ms",
)
_TEXTS = ("room_id", "device_id")

#: Rooms in a group of rows, all of which are in memory at once.
_ROW_GROUP = 50_000

#: A room by the names of its columns, in their order.
Record = dict[str, Any]
#: Writes rooms, and answers how many there were.
WriteRooms = Callable[[Iterable[Record]], int]


def as_record(room: RoomState) -> Record:
    """A room of the tables; the last two columns are None where it was never written."""
    stored, written = room.stored, room.written
    return {
        "hotel_id": stored.hotel_id,
        "room_id": stored.room_id,
        "device_id": stored.device_id,
        "ts_ms": stored.ts_ms,
        "status": stored.status,
        "source_partition": stored.source_partition,
        "source_offset": stored.source_offset,
        "arrived_at": stored.arrived_at,
        "written_at": written.at if written is not None else None,
        "written_ts_ms": written.ts_ms if written is not None else None,
    }


@contextmanager
def open_export(form: str, path: Path) -> Iterator[WriteRooms]:
    """A file, which is there only once it is whole. What is no file is written into as it is.

    Raises RecoveryError where it cannot be written, or its form not be made.
    """
    try:
        # A pipe or a device would be replaced by a file, which is as bad as it sounds.
        opened = path.open("wb") if path.exists() and not path.is_file() else _whole(path.resolve())
        with opened as stream, FORMATS[form](stream) as write:
            yield write
    except OSError as error:
        raise RecoveryError(f"cannot write {path}: {error.strerror or error}") from error


@contextmanager
def _whole(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes its place when it is complete. Others may be writing the same one."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.unfinished")
    try:
        with unfinished.open("wb") as stream:
            yield stream
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def _jsonl(stream: IO[bytes]) -> Iterator[WriteRooms]:
    """JSON in UTF-8, an object on each line."""

    def write(rooms: Iterable[Record]) -> int:
        count = 0
        for room in rooms:
            stream.write(msgspec.json.encode(room) + b"\n")
            count += 1
        return count

    yield write


@contextmanager
def _csv(stream: IO[bytes]) -> Iterator[WriteRooms]:
    """RFC 4180 in UTF-8 with the names in the first line; what is null is empty."""
    text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
    lines = csv.DictWriter(text, COLUMNS)
    lines.writeheader()

    def write(rooms: Iterable[Record]) -> int:
        count = 0
        for room in rooms:
            lines.writerow(room)
            count += 1
        return count

    yield write
    text.detach()  # flushed, and the stream left open


@contextmanager
def _parquet(stream: IO[bytes]) -> Iterator[WriteRooms]:
    """Apache Parquet: strings, and integers of 64 bits."""
    try:
        import pyarrow
        from pyarrow.parquet import ParquetWriter
    except ImportError:
        raise RecoveryError(
            'parquet needs pyarrow: pip install "heartbeat-stream[parquet]", or choose csv or jsonl'
        ) from None
    schema = pyarrow.schema(
        [(name, pyarrow.string() if name in _TEXTS else pyarrow.int64()) for name in COLUMNS]
    )
    with ParquetWriter(stream, schema) as file:

        def write(rooms: Iterable[Record]) -> int:
            left, count = iter(rooms), 0
            while part := list(islice(left, _ROW_GROUP)):
                file.write_table(pyarrow.Table.from_pylist(part, schema))
                count += len(part)
            return count

        yield write


FORMATS: dict[str, Callable[[IO[bytes]], AbstractContextManager[WriteRooms]]] = {
    "csv": _csv,
    "jsonl": _jsonl,
    "parquet": _parquet,
}
