"""Where tables are put together while a command needs them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from heartbeat_stream.recovery.errors import RecoveryError
from heartbeat_stream.scratch import ScratchDirectory

__all__ = ["scratch_directory"]


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """A temporary directory for the time of the block. Raises RecoveryError where none can be.

    A command that is killed leaves its directory behind; the next one removes it.
    """
    try:
        directory = ScratchDirectory("tables")
    except OSError as error:
        raise RecoveryError(
            f"no temporary directory can be made ({error.strerror}): set TMPDIR to one with room "
            "for the tables"
        ) from error
    with directory:
        yield directory.path
