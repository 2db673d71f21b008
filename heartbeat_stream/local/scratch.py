"""Temporary directories of the embedded servers: reachable for their user, and never left behind.

Each is named `heartbeat-stream-*` in the system's temporary directory and holds a lock file that
its owner keeps locked. One whose lock nobody holds is left from a killed run (and from a killed
supervisor, which would have removed it): the next run removes it.
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

from heartbeat_stream.local.process import ServerError

PREFIX = "heartbeat-stream-"
LOCK_NAME = "owner.lock"
# Between making a directory and locking it there is a moment: only an older one counts as left.
UNLOCKED_SECONDS = 60.0


def reachable_for_others(path: Path) -> bool:
    """Whether another user may pass through this directory and all above it."""
    resolved = path.resolve()
    return all(
        directory.stat().st_mode & stat.S_IXOTH for directory in (resolved, *resolved.parents)
    )


def temporary_parent() -> Path:
    """The temporary directory to use.

    The user's choice (TMPDIR), except that root needs one that an unprivileged user can reach.
    Raises ServerError where there is none.
    """
    chosen = Path(tempfile.gettempdir())
    if os.geteuid() != 0:
        return chosen
    for candidate in (chosen, Path("/tmp"), Path("/var/tmp")):
        if candidate.is_dir() and reachable_for_others(candidate):
            return candidate
    raise ServerError(
        f"no temporary directory that an unprivileged user can reach ({chosen} is not): set TMPDIR"
    )


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

    def __init__(self, purpose: str) -> None:
        parent = temporary_parent()
        remove_stale(parent)
        self.path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{purpose}-", dir=parent)).resolve()
        # Others may pass through, not look: the servers may run as another user.
        self.path.chmod(0o711)
        self._lock = (self.path / LOCK_NAME).open("ab")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        # A lock file that has been locked once has content; an empty one is still being made.
        self._lock.write(str(os.getpid()).encode())
        self._lock.flush()

    def subdirectory(self, name: str) -> Path:
        """A new directory in it, which others may pass through too whatever the umask."""
        path = self.path / name
        path.mkdir()
        path.chmod(0o711)
        return path

    def close(self) -> None:
        """Remove the directory with all that is in it. Safe to repeat."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()

    def __enter__(self) -> ScratchDirectory:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
