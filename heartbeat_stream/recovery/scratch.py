"""Where tables are put together while a command needs them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from heartbeat_stream.recovery.errors import RecoveryError

__all__ = ["scratch_directory"]


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """A temporary directory for the time of the block. Raises RecoveryError where none can be."""
    try:
        directory = tempfile.TemporaryDirectory(prefix="heartbeat-stream-")
    except OSError as error:
        raise RecoveryError(
            f"no temporary directory can be made ({error.strerror}): set TMPDIR to one with room "
            "for the tables"
        ) from error
    with directory:
        yield Path(directory.name)
