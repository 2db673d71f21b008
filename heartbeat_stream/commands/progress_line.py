"""A line that tells how far a command has come, on standard error.

On a terminal it is written over and over; elsewhere (a log of CI) a line now and then.
"""

from __future__ import annotations

import sys
import time
from typing import TextIO

_LOG_EVERY_S = 10.0


class ProgressLine:
    """A context manager; what it has written last stays."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._terminal = self._stream.isatty()
        self._width = 0
        self._written_at = time.monotonic()

    def show(self, text: str) -> None:
        """Replace the line; may be called as often as one likes."""
        if self._terminal:
            self._stream.write("\r" + text.ljust(self._width))
            self._stream.flush()
            self._width = len(text)
        elif time.monotonic() - self._written_at >= _LOG_EVERY_S:
            self._written_at = time.monotonic()
            self._stream.write(text + "\n")
            self._stream.flush()

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._width:
            self._stream.write("\n")
            self._stream.flush()
