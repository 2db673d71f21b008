"""One partition of one table on local disk, in RocksDB.

The local copy is a cache of the changelog that survives a restart: it may be behind it, and it may
be thrown away at any time, but it never holds what the changelog did not acknowledge. It says up
to which changelog offset it is complete.
"""

import contextlib
import logging
import os
import shutil
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final, cast

import msgspec
from rocksdict import (
    BlockBasedOptions,
    Cache,
    DbClosedError,
    DBCompressionType,
    DBRecoveryMode,
    Options,
    Rdict,
    WriteBatch,
    WriteBufferManager,
)

__all__ = [
    "Change",
    "Due",
    "News",
    "PartitionStore",
    "Position",
    "StoreDamaged",
    "StoreError",
    "StoreOptions",
    "place",
]

logger = logging.getLogger(__name__)

#: A key and its new value; None deletes the key.
Change = tuple[bytes, bytes | None]

#: Not legal keys of a table: no key starts with NUL.
_FIRST: Final = b"\1"
_IDENTITY_KEY: Final = b"\0identity"
_POSITION_KEY: Final = b"\0position"
#: Before the keys of the expiry index. It is made from the entries, here alone, and no changelog
#: knows of it. A row holds the keys of entries that were written together and go within a second:
#: one for each entry would double what a checkpoint writes. Its key is the last one's time, and
#: something that no other row has.
_INDEX: Final = b"\0expires"
_TIME: Final = struct.Struct(">Q")
_ROW_MS: Final = 1000
_ROW_MARK_BYTES: Final = 8
_NO_SPACE: Final = "No space left on device"
#: Keys read at a time: a few milliseconds.
_SLICE: Final = 2000
#: Grows when the tables' values, or what stands beside them, get another form.
_FORMAT: Final = 2
_INDEXED_FORMAT: Final = 3


_decode_keys = msgspec.msgpack.Decoder(list[bytes]).decode


class StoreError(Exception):
    """The local disk refuses: full, not writable, or damaged. The message names the directory."""


class StoreDamaged(StoreError):
    """The disk does not give back what was written to it. The copy is marked: it is discarded when
    it is opened the next time, unless whoever catches this does it now."""

    def __init__(self, message: str, store: "PartitionStore") -> None:
        super().__init__(message)
        self.store = store


class Position(msgspec.Struct, frozen=True):
    """Up to where a local copy is complete.

    ``offset`` is that of the last changelog record it covers, and ``timestamp`` that record's, in
    milliseconds: a changelog that was deleted and made again betrays itself by another one there.
    ``first`` is where the changelog began when it last held all that the copy does; it begins
    later now if somebody has deleted records.
    """

    offset: int
    timestamp: int
    first: int = 0


class News(msgspec.Struct):
    """What a local copy has learned from its changelog that memory was not told yet.

    It stays until whoever keeps the state in memory has taken it in, however often reading or
    taking in is interrupted by a rebalance.
    """

    records: int = 0
    changes: int = 0
    """Records that the local copy did not know, and that are newer than what it knew."""
    overtaken: set[bytes] = msgspec.field(default_factory=set)
    """Keys whose last record in the changelog is not the one to keep."""
    republish: bool = False
    """The changelog was made anew, or has lost records: write again all that the copy holds."""


class Due(msgspec.Struct):
    """A slice of the entries whose time is over, and the place in the index to go on at.

    They are found again from an earlier place until they have left, and their row is empty.
    """

    entries: list[tuple[bytes, bytes]]
    at: bytes


class StoreOptions:
    """RocksDB settings that all stores of a worker share, its block cache above all."""

    def __init__(self, cache_mb: int) -> None:
        size = cache_mb * 1024 * 1024
        self._cache = Cache(size)
        # What they take is taken from the cache, so that one bound holds for both.
        self._write_buffers = WriteBufferManager.new_write_buffer_manager_with_cache(
            size, False, self._cache
        )

    def open(self, path: Path) -> Rdict:
        """Open or create the database. Raises whatever RocksDB says as a bare Exception."""
        # Without naming the column family, the options of an existing one would be those that it
        # was created with, and its block cache one of its own.
        return Rdict(str(path), options=self._all(), column_families={"default": self._all()})

    def _all(self) -> Options:
        blocks = BlockBasedOptions()
        blocks.set_block_cache(self._cache)
        blocks.set_bloom_filter(10, False)
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_block_based_table_factory(blocks)
        # The defaults (3 memtables of 64 MiB) are meant for one database, not for dozens.
        options.set_write_buffer_manager(self._write_buffers)
        options.set_write_buffer_size(8 * 1024 * 1024)
        options.set_max_write_buffer_number(2)
        options.set_max_total_wal_size(32 * 1024 * 1024)
        options.set_max_background_jobs(2)
        options.set_keep_log_file_num(2)
        options.set_max_log_file_size(1024 * 1024)
        options.set_compression_type(DBCompressionType.lz4())
        # A write log with a damaged tail is the normal end of a machine that lost power. The copy
        # is then merely further behind: position and data are written together.
        options.set_wal_recovery_mode(DBRecoveryMode.point_in_time())
        return options


def place(time_ms: int) -> bytes:
    """Where the rows of this time, and of later ones, begin in an expiry index."""
    return _INDEX + _TIME.pack(max(0, time_ms))


class PartitionStore:
    """A key-value store of one partition, with raw keys and values.

    Nothing in here awaits. A write of a few thousand keys takes a few milliseconds, during which
    RocksDB holds the interpreter: callers hand over slices.
    """

    def __init__(
        self,
        path: Path,
        options: StoreOptions,
        identity: str,
        expires: Callable[[bytes], int] | None = None,
    ) -> None:
        """``identity`` says whose state this is. What is found of somebody else is discarded.

        ``expires`` tells of a value until when it counts, in ms: an index by that time is kept.
        """
        self.path = path
        self._expires = expires
        self._options = options
        form = _FORMAT if expires is None else _INDEXED_FORMAT
        self._identity = f"{form} {identity}".encode()
        self._mark = path.with_name(path.name + ".damaged")
        self._failed = False  # whether RocksDB must be opened again before it takes another write
        self.news = News()
        self.position: Position | None = None
        #: Where the changelog begins, as far as anybody has looked.
        self.log_start = 0
        #: Whether a key may be in here at all: spares a new table a look-up per key.
        self.empty = True
        self._db = self._open()
        try:
            self._take_in()
        except StoreDamaged as damage:
            self.discard(damage)

    def _open(self) -> Rdict:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self._mark.exists():
            self._complain("it was found damaged before")
            return self._open_anew()
        try:
            return self._options.open(self.path)
        except Exception as exc:  # rocksdict raises bare Exception for whatever RocksDB says
            if _is_damage(exc):
                self._complain(exc)
                return self._open_anew()
            raise StoreError(f"cannot open the local state in {self.path}: {exc}") from exc

    def _take_in(self) -> None:
        """Look at what has been opened: whose it is, and how far it goes."""
        found, raw_position = self._read([_IDENTITY_KEY, _POSITION_KEY])
        self.empty = next(iter(self.scan()), None) is None
        if found == self._identity:
            try:
                self.position = msgspec.json.decode(raw_position or b"null", type=Position | None)
                return
            except msgspec.DecodeError as exc:
                self.discard(exc)
        elif found is not None or raw_position is not None or not self.empty:
            self.discard(f"it is of another application or version: {found!r}")
        else:
            self._put_identity()

    def _put_identity(self) -> None:
        try:
            self._db.put(_IDENTITY_KEY, self._identity)
        except Exception as exc:  # rocksdict raises bare Exception for whatever RocksDB says
            raise StoreError(f"cannot write the local state in {self.path}: {exc}") from exc

    def _complain(self, why: object, level: int = logging.ERROR) -> None:
        logger.log(
            level,
            "local state in %s cannot be used (%s): it is discarded and rebuilt from the changelog",
            self.path,
            why,
        )

    def _open_anew(self) -> Rdict:
        shutil.rmtree(self.path, ignore_errors=True)
        self._mark.unlink(missing_ok=True)
        try:
            return self._options.open(self.path)
        except Exception as exc:  # as above
            raise StoreError(f"cannot open the local state in {self.path}: {exc}") from exc

    def discard(self, why: object, level: int = logging.ERROR) -> None:
        """Throw away everything in here, and start empty. Raises StoreError.

        ``level``: that of the log line, which is less where nothing is wrong.
        """
        self._complain(why, level)
        self.close()
        self._db = self._open_anew()
        self._failed = False
        self.position = None
        self.empty = True
        self.news.republish = False
        self._put_identity()

    def get(self, key: bytes) -> bytes | None:
        """The value of one key. Raises as :meth:`get_many` does."""
        if self.empty:
            return None
        try:
            value: bytes | None = self._db.get(key)
            return value
        except Exception as exc:  # rocksdict raises bare Exception for whatever RocksDB says
            raise self._error("read", exc) from exc

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of many keys, in their order.

        Raises :class:`StoreError`, and :class:`StoreDamaged` where the disk does not give back
        what was written to it.
        """
        if self.empty:
            return [None] * len(keys)
        return self._read(keys)

    def _read(self, keys: Sequence[bytes]) -> list[bytes | None]:
        get = self._db.get
        try:
            return [get(key) for key in keys]
        except Exception as exc:  # rocksdict raises bare Exception for whatever RocksDB says
            raise self._error("read", exc) from exc

    def _error(self, action: str, exc: Exception) -> StoreError:
        message = f"cannot {action} the local state in {self.path}: {exc}"
        if not _is_damage(exc):
            return StoreError(message)
        with contextlib.suppress(OSError):
            self._mark.touch()
        return StoreDamaged(message, self)

    def write(self, changes: Iterable[Change], position: Position | None = None) -> None:
        """Apply changes at once or not at all, and with them the new position, if any.

        Raises :class:`StoreError`: nothing was applied then.
        """
        self._apply(changes if self._expires is None else self._indexed(changes), position)

    def _apply(self, changes: Iterable[Change], position: Position | None) -> None:
        batch = WriteBatch(raw_mode=True)
        put, delete = batch.put, batch.delete
        for key, value in changes:
            if value is None:
                delete(key)
            else:
                put(key, value)
        if len(batch):
            self.empty = False
        if position is not None:
            put(_POSITION_KEY, msgspec.json.encode(position))
        try:
            if self._failed:
                self.close()
                self._db = self._options.open(self.path)
                self._failed = False
            self._db.write(batch)
        except Exception as exc:  # rocksdict raises bare Exception for whatever RocksDB says
            # RocksDB refuses every write after one that failed. When the disk was full it goes on
            # by itself, within seconds after there is room again; and until then it can be read.
            self._failed = _NO_SPACE not in str(exc)
            raise self._error("write", exc) from exc
        if position is not None:
            self.position = position

    def _indexed(self, changes: Iterable[Change]) -> Iterator[Change]:
        """The changes with rows of the index. Those of entries that leave stay until they are
        looked at: see :meth:`due`."""
        expires = cast("Callable[[bytes], int]", self._expires)
        rows: dict[int, list[bytes]] = {}
        latest: dict[int, int] = {}
        for change in changes:
            key, value = change
            if value is not None:
                expires_ms = expires(value)
                second = expires_ms // _ROW_MS
                if second not in rows:
                    rows[second], latest[second] = [], expires_ms
                rows[second].append(key)
                if expires_ms > latest[second]:
                    latest[second] = expires_ms
            yield change
        for second, keys in rows.items():
            mark = os.urandom(_ROW_MARK_BYTES)
            yield place(latest[second]) + mark, msgspec.msgpack.encode(keys)

    def due(self, before_ms: int, limit: int, at: bytes | None = None) -> Due:
        """Entries whose time is over before this one, from a place in the expiry index on: those of
        rows with ``limit`` keys together, or a few more. They come up to a second late, and some
        that have got another time come twice. Rows that hold nothing any more, since
        their entries have left or have got another time, are removed. Raises as :meth:`get_many`
        does, and as :meth:`write` does.
        """
        expires = cast("Callable[[bytes], int]", self._expires)
        rows, next_place = self._rows(at or _INDEX, place(before_ms), limit)
        entries: list[tuple[bytes, bytes]] = []
        void: list[Change] = []
        for row, keys in rows:
            last_ms: int = _TIME.unpack_from(row, len(_INDEX))[0]
            first_ms = last_ms - last_ms % _ROW_MS
            found = [
                (key, value)
                for key, value in zip(keys, self.get_many(keys), strict=True)
                if value is not None and first_ms <= max(0, expires(value)) <= last_ms
            ]
            entries += found
            if not found:
                void.append((row, None))
        if void:
            self._apply(void, None)
        return Due(entries, next_place)

    def _rows(
        self, start: bytes, end: bytes, limit: int
    ) -> tuple[list[tuple[bytes, list[bytes]]], bytes]:
        """Rows of the index up to this many keys, and the place behind them."""
        rows: list[tuple[bytes, list[bytes]]] = []
        count = 0
        try:
            items = cast("Iterator[tuple[bytes, bytes]]", self._db.items(from_key=start))
            for row, packed in items:
                if count >= limit or row >= end:
                    return rows, min(row, end)
                keys = _decode_keys(packed)
                rows.append((row, keys))
                count += len(keys)
        except Exception as exc:  # rocksdict raises bare Exception for whatever RocksDB says
            raise self._error("read", exc) from exc
        return rows, end

    def scan(self, after: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """All keys in order, or those behind ``after``, with their values.

        Raises as :meth:`get_many` does.
        """
        last = after
        while True:
            # By slices, because an open iterator would keep the database from being closed.
            part = self._slice(last)
            yield from part
            if len(part) < _SLICE:
                return
            last = part[-1][0]

    def range(self, prefix: bytes, after: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """At most ``limit`` keys, with their values, that begin with ``prefix`` and come behind
        ``after``, in order. Reads no more than one key beyond them.

        Raises as :meth:`get_many` does.
        """
        if self.empty:
            return []
        part = self._from(max(prefix, after, _FIRST), limit + 1)
        return [one for one in part if one[0] > after and one[0].startswith(prefix)][:limit]

    def _slice(self, after: bytes | None) -> list[tuple[bytes, bytes]]:
        start = after if after is not None else _FIRST
        part = self._from(start, _SLICE + (after is not None))
        return part[1:] if part and part[0][0] == after else part[:_SLICE]

    def _from(self, start: bytes, count: int) -> list[tuple[bytes, bytes]]:
        try:
            part = cast(
                "list[tuple[bytes, bytes]]", list(islice(self._db.items(from_key=start), count))
            )
            if len(part) < count:
                self._check_end(part[-1][0] if part else start)
        except Exception as exc:  # rocksdict raises bare Exception for whatever RocksDB says
            raise self._error("read", exc) from exc
        return part

    def _check_end(self, last: bytes) -> None:
        """Raise what ended an iteration, if that was not the end of all keys.

        rocksdict's iterators simply stop where a block cannot be read. Only its cursors can be
        asked why.
        """
        cursor = self._db.iter()
        cursor.seek(last)
        if cursor.valid():
            cursor.next()
        try:
            cursor.status()
        except Exception:  # rocksdict raises bare Exception for whatever RocksDB says
            del cursor  # the traceback would keep it, and it the database
            raise

    def size_bytes(self) -> int:
        """Bytes on disk and in memtables, as RocksDB estimates them."""
        files = self._db.property_int_value("rocksdb.total-sst-files-size") or 0
        return files + (self._db.property_int_value("rocksdb.cur-size-all-mem-tables") or 0)

    def close(self) -> None:
        """Safe to repeat, and to call where opening it anew has failed."""
        try:
            self._db.close()
        except DbClosedError:
            pass
        except Exception as exc:  # rocksdict raises bare Exception for whatever RocksDB says
            # It is closed all the same. What it has not kept stands in the changelog.
            logger.warning("the local state in %s was not closed in order: %s", self.path, exc)


def _is_damage(exc: Exception) -> bool:
    text = str(exc)
    return any(
        sign in text
        for sign in (
            "Corruption",
            "No such file",
            "not found",
            "does not exist",
            "Invalid argument",
        )
    )
