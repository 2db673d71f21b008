"""Reports that Kafka has not taken, on disk: append-only segments, read in order, bounded.

An entry is its length, its CRC-32 and its bytes. What :meth:`Spool.append` has returned for is
on the disk and survives kill -9 and a loss of power. A tail that was torn off by one is not read.
A position beside the segments says what has been read and dealt with; it is not synced, so after a
loss of power an entry may be read again, never left out.
"""

import asyncio
import logging
import os
import struct
import zlib
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["Entry", "Spool", "SpoolFull"]

logger = logging.getLogger(__name__)

_HEAD: Final = struct.Struct(">II")
_SUFFIX: Final = ".spool"
_POSITION: Final = "position"
_SEGMENTS: Final = 16
_SEGMENT_MAX: Final = 16 * 1024 * 1024


class SpoolFull(Exception):
    """There is no room, or the disk does not take it. The message says which."""


class Entry(NamedTuple):
    """One entry: where it stands, where it ends, and its bytes."""

    segment: int
    start: int
    end: int
    payload: bytes


class Spool:
    """For one event loop, and one reader. The files are touched in one thread of its own."""

    def __init__(self, directory: Path, max_bytes: int) -> None:
        """Takes up what is there. Raises OSError where the directory cannot be used."""
        self._directory = directory
        self._max_bytes = max_bytes
        self._segment_bytes = min(_SEGMENT_MAX, max(1, max_bytes // _SEGMENTS))
        directory.mkdir(parents=True, exist_ok=True)
        #: Size of each segment that is there, oldest first: of its whole entries for ours.
        self._sizes: dict[int, int] = {
            int(path.stem): path.stat().st_size for path in sorted(directory.glob(f"*{_SUFFIX}"))
        }
        self._segment, self._at = self._read_position()
        self._writing = max(self._segment, *self._sizes, 0) + 1
        self._file: int | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="spool")
        self._queue: deque[tuple[bytes, asyncio.Future[tuple[int, int]]]] = deque()
        self._queued_bytes = 0
        self._flushing: asyncio.Task[None] | None = None
        self._drop_read()

    @property
    def size(self) -> int:
        """What is on disk, and not yet dealt with."""
        return max(0, sum(list(self._sizes.values())) - self._at)

    @property
    def full(self) -> bool:
        """Whether an entry of any size is refused."""
        return self._used() >= self._max_bytes

    def _used(self) -> int:
        return sum(list(self._sizes.values())) + self._queued_bytes

    async def append(self, payload: bytes) -> tuple[int, int]:
        """Keep it; where it stands. Returns once it is synced to the disk.

        Entries that come together share a sync. Raises :class:`SpoolFull`.
        """
        size = _HEAD.size + len(payload)
        if self._used() + size > self._max_bytes:
            raise SpoolFull(f"the spool holds its {self._max_bytes} bytes")
        future: asyncio.Future[tuple[int, int]] = asyncio.get_running_loop().create_future()
        self._queue.append((payload, future))
        self._queued_bytes += size
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._flush())
        # Cancelling one who waits must not take the entry from the others of its sync.
        return await asyncio.shield(future)

    async def _flush(self) -> None:
        loop = asyncio.get_running_loop()
        while self._queue:
            together = list(self._queue)
            self._queue.clear()
            written = [_HEAD.pack(len(one), zlib.crc32(one)) + one for one, _ in together]
            try:
                segment, at = await loop.run_in_executor(self._thread, self._write, written)
            except OSError as error:
                for _, future in together:
                    if not future.done():
                        future.set_exception(SpoolFull(f"the disk refuses: {error.strerror}"))
                        future.exception()  # one whose client has gone is nobody's to fetch
            else:
                for one, (_, future) in zip(written, together, strict=True):
                    if not future.done():
                        future.set_result((segment, at))
                    at += len(one)
            self._queued_bytes -= sum(map(len, written))
        self._flushing = None

    def _write(self, entries: list[bytes]) -> tuple[int, int]:
        """In the thread: write and sync; the segment, and where in it the first entry stands."""
        if self._file is None or self._sizes.get(self._writing, 0) >= self._segment_bytes:
            self._begin_segment()
        assert self._file is not None
        at = self._sizes.get(self._writing, 0)
        data = memoryview(b"".join(entries))
        try:
            done = 0
            while done < len(data):
                done += os.pwrite(self._file, data[done:], at + done)
            os.fdatasync(self._file)
        except OSError:
            # What is behind the last whole entry is overwritten, or torn off when it is read.
            with suppress(OSError):
                os.ftruncate(self._file, at)
            raise
        self._sizes[self._writing] = at + len(data)
        return self._writing, at

    def _begin_segment(self) -> None:
        number = self._writing if self._file is None else self._writing + 1
        path = self._path(number)
        new = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
        directory = os.open(self._directory, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
        if self._file is not None:
            os.close(self._file)
        self._file, self._writing = new, number

    async def next(self) -> Entry | None:
        """The oldest entry that is not dealt with; None where there is none."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._next)

    def _next(self) -> Entry | None:
        while True:
            if self._segment not in self._sizes:
                later = [number for number in self._sizes if number > self._segment]
                if not later:
                    return None
                self._segment, self._at = min(later), 0
            size = self._sizes[self._segment]
            entry = self._read(self._segment, self._at, size)
            if entry is not None or (self._is_current() and self._at >= size):
                return entry
            self._go_on()

    def _read(self, segment: int, start: int, size: int) -> Entry | None:
        """The entry there; None at the end of the segment, or where what follows is no entry."""
        end = start + _HEAD.size
        if end > size:
            return None
        try:
            file = os.open(self._path(segment), os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            logger.error("a segment of the spool cannot be read: %s", error)
            return None
        try:
            length, checksum = _HEAD.unpack(os.pread(file, _HEAD.size, start))
            payload = os.pread(file, length, end) if end + length <= size else b""
        except (OSError, struct.error) as error:
            logger.error("segment %d of the spool cannot be read: %s", segment, error)
            return None
        finally:
            os.close(file)
        if len(payload) != length or zlib.crc32(payload) != checksum or not length:
            logger.warning("segment %d of the spool is torn off at byte %d", segment, start)
            return None
        return Entry(segment, start, end + length, payload)

    async def done(self, entry: Entry) -> None:
        """It is dealt with: it is not read again."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._done, entry)

    def _done(self, entry: Entry) -> None:
        self._segment, self._at = entry.segment, entry.end
        if self._at >= self._sizes[self._segment] and not self._is_current():
            self._go_on()
        else:
            self._note_position()

    def _is_current(self) -> bool:
        return self._segment == self._writing and self._file is not None

    def _go_on(self) -> None:
        """To the next segment; this one goes."""
        if self._is_current() and self._file is not None:
            os.close(self._file)
            self._file = None
            self._writing += 1
        self._segment, self._at = self._segment + 1, 0
        self._note_position()
        self._drop_read()

    def _drop_read(self) -> None:
        for number in [number for number in list(self._sizes) if number < self._segment]:
            self._path(number).unlink(missing_ok=True)
            del self._sizes[number]

    def _note_position(self) -> None:
        with suppress(OSError):  # at worst, what was dealt with is read again
            new = self._directory / f"{_POSITION}.new"
            new.write_text(f"{self._segment} {self._at}")
            new.replace(self._directory / _POSITION)

    def _read_position(self) -> tuple[int, int]:
        try:
            segment, at = map(int, (self._directory / _POSITION).read_text().split())
        except (OSError, ValueError):
            return min(self._sizes, default=1), 0
        return segment, at

    def _path(self, segment: int) -> Path:
        return self._directory / f"{segment:012d}{_SUFFIX}"

    async def close(self) -> None:
        """End what is being written. Whoever appends afterwards is on their own."""
        while self._flushing is not None:
            await asyncio.sleep(0.001)
        self._thread.shutdown()
        if self._file is not None:
            os.close(self._file)
            self._file = None
