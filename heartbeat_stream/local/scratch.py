"""Temporary directories of the embedded servers, which may run as another user."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from heartbeat_stream import scratch
from heartbeat_stream.local.process import ServerError

__all__ = ["ScratchDirectory", "reachable_for_others", "temporary_parent"]


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


class ScratchDirectory(scratch.ScratchDirectory):
    """A new temporary directory that others may pass through, and not look into."""

    def __init__(self, purpose: str) -> None:
        super().__init__(purpose, temporary_parent())
        self.path.chmod(0o711)

    def subdirectory(self, name: str) -> Path:
        """A new directory in it, which others may pass through too whatever the umask."""
        path = self.path / name
        path.mkdir()
        path.chmod(0o711)
        return path
