"""A directory of its own for each worker, in a data directory that workers may share.

The layout is ``<data dir>/<app id>/worker-<n>/``. A worker takes the first one that nobody has
locked; so the restarted one finds its own again, and a second one on the same host gets another.
The lock is the kernel's: it goes with the process, however that ends.
"""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

__all__ = ["DataDirectory", "DataDirectoryError"]

_MOST_WORKERS = 256
_CLOCK = "clock"


class DataDirectoryError(Exception):
    """The data directory cannot be used. The message says why, and what to set."""


class DataDirectory:
    """A locked directory. Give it back with :meth:`release`."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock

    @classmethod
    def claim(cls, root: Path, app_id: str) -> "DataDirectory":
        """Lock the first free directory, made where it does not exist yet.

        Raises :class:`DataDirectoryError`.
        """
        for number in range(_MOST_WORKERS):
            path = root / app_id / f"worker-{number}"
            try:
                path.mkdir(parents=True, exist_ok=True)
                lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            except OSError as exc:
                raise DataDirectoryError(
                    f"cannot use the data directory {root} ({exc.strerror}): set "
                    "HEARTBEAT_DATA_DIR to a directory that this user may write"
                ) from exc
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
                continue
            return cls(path, lock)
        raise DataDirectoryError(f"{_MOST_WORKERS} workers use the data directory {root} already")

    def last_time_ms(self) -> int:
        """The latest time that a worker in this directory has noted; 0 where there is none."""
        try:
            return int((self.path / _CLOCK).read_text())
        except (OSError, ValueError):
            return 0

    def note_time(self, now_ms: int) -> None:
        """Note the worker's time, for a restart under a system clock that was set back meanwhile.

        A disk that does not take it is not worth an error: it only saves from a rare trouble.
        """
        with suppress(OSError):
            new = self.path / f"{_CLOCK}.new"
            new.write_text(str(now_ms))
            new.replace(self.path / _CLOCK)

    def release(self) -> None:
        os.close(self._lock)
