"""The two tables of the heartbeat job: how their values look in the changelog and on disk."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import msgspec

from heartbeat_stream.core.latest import Shard
from heartbeat_stream.core.room import Room, Stored, Written
from heartbeat_stream.streaming.changelog import VERSION_HEADER
from heartbeat_stream.streaming.producer import OutRecord
from heartbeat_stream.streaming.store import PartitionStore
from heartbeat_stream.streaming.tables import StateTable
from heartbeat_stream.streaming.topics import TABLES

__all__ = [
    "LATEST",
    "WRITTEN",
    "ChangedDelta",
    "SettledDelta",
    "TombstoneDelta",
    "encode",
    "find_rooms",
    "latest_version",
    "read_stored",
    "read_written",
    "tombstone",
    "written_version",
]

LATEST, WRITTEN = TABLES


class _TsOnly(msgspec.Struct, gc=False):
    ts_ms: int


encode = msgspec.json.Encoder().encode
read_stored = msgspec.json.Decoder(Stored).decode
read_written = msgspec.json.Decoder(Written).decode
_read_ts = msgspec.json.Decoder(_TsOnly).decode


def latest_version(value: bytes) -> int:
    """Of two heartbeats of a room the one with the greater ``ts_ms`` is to be kept."""
    return _read_ts(value).ts_ms


def written_version(value: bytes) -> int:
    """Of two writes the one of the greater ``ts_ms`` counts, and of those the later."""
    written = read_written(value)
    return (written.ts_ms << 48) + written.at


def tombstone(key: bytes, version: int) -> OutRecord:
    """The record that takes a key out of a table, unless it is newer than this by then."""
    return OutRecord(key, None, [(VERSION_HEADER, b"%d" % version)])


class RoomDelta(ABC):
    """Rooms of a shard whose entry in one of the tables is to be written.

    ``flag`` names both the rooms' flag and the shard's list of flagged rooms, which this takes
    over. A room that changes again before it is encoded is simply encoded as it is by then.
    """

    flag: ClassVar[str]

    def __init__(self, table: StateTable, shard: Shard) -> None:
        self.table = table
        self.partition = shard.partition
        self._shard = shard
        self._rooms: list[Room] = getattr(shard, self.flag)
        setattr(shard, self.flag, [])

    def __len__(self) -> int:
        return len(self._rooms)

    @abstractmethod
    def encode(self, start: int, stop: int) -> list[OutRecord]:
        """The changelog records of the rooms ``start`` to ``stop``, as they are now."""

    def undo(self) -> None:
        flagged: list[Room] = getattr(self._shard, self.flag)
        listed = set(map(id, flagged))
        for room in self._rooms:
            if id(room) not in listed:
                setattr(room, self.flag, True)
                flagged.append(room)


class ChangedDelta(RoomDelta):
    """Rooms with a newer heartbeat than ``latest`` holds."""

    flag = "changed"

    def encode(self, start: int, stop: int) -> list[OutRecord]:
        records = []
        for room in self._rooms[start:stop]:
            room.changed = False
            records.append(OutRecord(room.key, encode(room.stored())))
        return records


class SettledDelta(RoomDelta):
    """Rooms with a later write than ``last_written_at`` holds."""

    flag = "settled"

    def encode(self, start: int, stop: int) -> list[OutRecord]:
        records = []
        for room in self._rooms[start:stop]:
            room.settled = False
            written = Written(room.written_at, room.written_ts)
            records.append(OutRecord(room.key, encode(written)))
        return records


class TombstoneDelta:
    """Rooms that leave one of the tables, each with the version that it is to leave at."""

    def __init__(self, table: StateTable, partition: int, versions: dict[bytes, int]) -> None:
        self.table = table
        self.partition = partition
        self._versions = list(versions.items())

    def __len__(self) -> int:
        return len(self._versions)

    def encode(self, start: int, stop: int) -> list[OutRecord]:
        return [tombstone(key, version) for key, version in self._versions[start:stop]]

    def undo(self) -> None:
        """Nothing to do: the next sweep finds the same rooms again."""


def find_rooms(
    latest: PartitionStore, written: PartitionStore, keys: Sequence[bytes]
) -> list[tuple[Stored, Written | None] | None]:
    """What the two tables hold of some rooms; None for those that they do not know."""
    return [
        None
        if raw_latest is None
        else (read_stored(raw_latest), read_written(raw_written) if raw_written else None)
        for raw_latest, raw_written in zip(
            latest.get_many(keys), written.get_many(keys), strict=True
        )
    ]
