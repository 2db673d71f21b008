"""Can a worker keep its state on this disk?"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from heartbeat_stream.checks.finding import Finding, fail, ok
from heartbeat_stream.settings import Settings

_LOCKS = Path("/proc/locks")


def check_data_directory(settings: Settings) -> Iterator[Finding]:
    """Whether it may be written, and who uses it already."""
    root = settings.data_dir
    shown = f"data directory {root}"
    advice = "set HEARTBEAT_DATA_DIR to a directory that this user may write"
    first = root.absolute() / settings.app_id / "worker-0"
    existing = next(path for path in (first, *first.parents) if path.exists())
    reason = _not_writable(existing)
    if reason is None and (first / "lock").is_dir():
        reason = f"{first / 'lock'} is a directory"
    if reason is not None:
        yield fail(f"{shown} cannot be written ({reason}): {advice}")
        return
    yield ok(f"{shown} can be written" if root.exists() else f"{shown} can be created")
    for path, pid in locked(root / settings.app_id):
        yield ok(f"{path} is in use by process {pid}; another worker takes a directory of its own")


def locked(directory: Path) -> list[tuple[Path, int]]:
    """The workers' directories that somebody has locked, with the process.

    Read from the kernel's list, where there is one: trying the lock would take it for an instant,
    and a worker that starts in that instant would miss its own directory.
    """
    try:
        lines = _LOCKS.read_text().splitlines()
    except OSError:
        return []
    holders: dict[int, int] = {}
    for line in lines:
        # 1: FLOCK  ADVISORY  WRITE 4711 08:01:123456 0 EOF
        words = line.split()
        if words[1:2] == ["FLOCK"]:
            holders[int(words[5].rpartition(":")[2])] = int(words[4])
    return [
        (lock.parent, holders[inode])
        for lock in sorted(directory.glob("worker-*/lock"))
        if (inode := lock.stat().st_ino) in holders
    ]


def _not_writable(directory: Path) -> str | None:
    """Why no file can be made there; None where one can. Leaves none behind."""
    if not directory.is_dir():
        return f"{directory} is a file"
    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            file.write(b"x")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return error.strerror
    return None
