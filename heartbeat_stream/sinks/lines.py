"""Printing lines where nobody acknowledges: standard output, or a file with rotation.

A thread writes, in the order in which lines were put, so that a slow terminal or disk holds up
nobody; whoever puts more waits once there is too much. What was written is on disk before
:meth:`LineSink.settled` returns; standard output has it in its pipe then.
"""

import asyncio
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

from heartbeat_stream.complaints import Complaints

__all__ = ["FileTarget", "LineSink", "StdoutTarget", "Target"]

logger = logging.getLogger(__name__)

_MOST_WAITING_BYTES: Final = 16 * 1024 * 1024
_PIECE_BYTES: Final = 256 * 1024
_RETRY_S: Final = 0.5


class Target(Protocol):
    """What is written to, from one thread alone."""

    name: str

    def write(self, data: bytes) -> int:
        """Write some of it, and answer how much. Raises OSError."""

    def sync(self) -> None:
        """Return when what was written survives this process. Raises OSError."""

    def close(self) -> None: ...


class StdoutTarget:
    """Standard output."""

    name = "standard output"

    def __init__(self) -> None:
        self._descriptor = sys.stdout.fileno()

    def write(self, data: bytes) -> int:
        return os.write(self._descriptor, data)

    def sync(self) -> None:
        """A pipe's reader cannot be waited for."""

    def close(self) -> None:
        """It is not ours to close."""


class FileTarget:
    """A file that is renamed to ``NAME.1`` when it has grown to a size, the one before to
    ``NAME.2`` and so on; ``count`` of them are kept. A line is never cut in two."""

    def __init__(self, path: Path, most_bytes: int, count: int) -> None:
        self.name = str(path)
        self._path = path
        self._most_bytes = most_bytes
        self._count = count
        self._descriptor: int | None = None
        self._rest = 0  # bytes of a line that has been begun

    def write(self, data: bytes) -> int:
        descriptor = self._open()
        if self._rest == 0 and os.fstat(descriptor).st_size >= self._most_bytes:
            self._rotate()
            descriptor = self._open()
        end = data.find(b"\n", _PIECE_BYTES) + 1 if self._rest == 0 else self._rest
        piece = data[: end or len(data)]
        written = os.write(descriptor, piece)
        self._rest = len(piece) - written
        return written

    def _open(self) -> int:
        if self._descriptor is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            self._end_line(self._descriptor)
        return self._descriptor

    def _end_line(self, descriptor: int) -> None:
        """What a crash has cut is a line of its own: the next text does not join it."""
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            os.write(descriptor, b"\n")

    def _rotate(self) -> None:
        self.sync()
        self.close()
        for number in range(self._count - 1, 0, -1):
            older = self._path.with_name(f"{self._path.name}.{number}")
            newer = self._path.with_name(f"{self._path.name}.{number - 1}")
            source = newer if number > 1 else self._path
            if source.exists():
                source.replace(older)
        if self._count == 1:
            self._path.unlink(missing_ok=True)

    def sync(self) -> None:
        if self._descriptor is not None:
            os.fsync(self._descriptor)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class LineSink:
    """Puts lines to a target, each tried until it is written. For one event loop."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._loop = asyncio.get_running_loop()
        self._changed = threading.Condition()
        self._waiting = bytearray()
        self._put = 0
        self._written = 0
        self._sync_wanted = False
        self._synced = 0
        self._stopped = False
        self._waiters: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self._complaints = Complaints(logger)
        self.last_error: str | None = None
        self._thread = threading.Thread(target=self._run, name="lines", daemon=True)
        self._thread.start()

    def put(self, lines: Sequence[bytes]) -> None:
        """Print these, each with a line break behind it. Never waits: see :meth:`room`."""
        data = b"".join([part for line in lines for part in (line, b"\n")])
        with self._changed:
            self._waiting += data
            self._put += len(data)
            self._changed.notify()

    async def room(self) -> None:
        """Wait while too much is waiting to be written."""
        await self._until(lambda: self._put - self._written < _MOST_WAITING_BYTES)

    async def settled(self) -> None:
        """Return when all that was put before this call is written, and safe in a file."""
        put = self._put
        with self._changed:
            self._sync_wanted = True
            self._changed.notify()
        await self._until(lambda: self._synced >= put)

    async def _until(self, condition: Callable[[], bool]) -> None:
        if condition():
            return
        future = self._loop.create_future()
        with self._changed:
            self._waiters.append((condition, future))
        self._wake()
        await future

    def _wake(self) -> None:
        with self._changed:
            over = [one for one in self._waiters if one[0]() or one[1].done()]
            self._waiters = [one for one in self._waiters if one not in over]
        for _, future in over:
            if not future.done():
                future.set_result(None)

    def stop(self) -> None:
        """End the thread. What is not written by now was not settled either."""
        with self._changed:
            self._stopped = True
            self._changed.notify()

    # -- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        while self._step():
            try:
                self._loop.call_soon_threadsafe(self._wake)
            except RuntimeError:  # the loop is closed: nobody waits
                return
        self._target.close()

    def _step(self) -> bool:
        with self._changed:
            while not (self._stopped or self._waiting or self._sync_wanted):
                self._changed.wait()
            if self._stopped:
                return False
            data = bytes(self._waiting)
        try:
            if data:
                written = self._target.write(data)
                with self._changed:
                    del self._waiting[:written]
                    self._written += written
            elif self._sync_wanted:
                self._sync_wanted = False
                written = self._written
                self._target.sync()
                self._synced = written
            self.last_error = None
        except OSError as exc:
            self._sync_wanted = True
            self.last_error = f"cannot write to {self._target.name}: {exc.strerror}"
            self._complaints.warning("%s: trying again", self.last_error)
            time.sleep(_RETRY_S)
        return True
