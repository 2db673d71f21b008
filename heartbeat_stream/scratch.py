"""Temporary directories that are never left behind.

Each is named `heartbeat-stream-*` in a temporary directory and holds a lock file that its owner
keeps locked. One whose lock nobody holds is left from a killed process: the next one removes it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = ["LOCK_NAME", "PREFIX", "UNLOCKED_SECONDS", "ScratchDirectory", "remove_stale"]

PREFIX = "heartbeat-stream-"
LOCK_NAME = "owner.lock"
# Between making a directory and locking it there is a moment: only an older one counts as left.
UNLOCKED_SECONDS = 60.0


def remove_stale(parent: Path) -> None:
    """Remove what killed runs of this user have left in `parent`."""
    for directory in parent.glob(f"{PREFIX}*"):
        try:
            status = directory.lstat()
            ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
            if ours and _is_abandoned(directory, time.time() - status.st_mtime):
                shutil.rmtree(directory, ignore_errors=True)
        except OSError:
            continue  # just gone


def _is_abandoned(directory: Path, age_seconds: float) -> bool:
    try:
        # Not created where it is missing: its owner may be removing the directory right now.
        with (directory / LOCK_NAME).open("rb+") as lock:
            if not lock.read(1):
                return age_seconds > UNLOCKED_SECONDS
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    except FileNotFoundError:
        return age_seconds > UNLOCKED_SECONDS
    except BlockingIOError:
        return False


class ScratchDirectory:
    """A new temporary directory, for as long as this object is not closed."""

    def __init__(self, purpose: str, parent: Path | None = None) -> None:
        """In ``parent``, or else in the system's temporary directory. Raises OSError."""
        parent = parent or Path(tempfile.gettempdir())
        remove_stale(parent)
        self.path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{purpose}-", dir=parent)).resolve()
        self._lock = (self.path / LOCK_NAME).open("ab")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        # A lock file that has been locked once has content; an empty one is still being made.
        self._lock.write(str(os.getpid()).encode())
        self._lock.flush()

    def close(self) -> None:
        """Remove the directory with all that is in it. Safe to repeat."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
