"""The last warnings and errors of the log, kept for the web view: few, short, without secrets."""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable

import msgspec

from heartbeat_stream.logs import OURS, RedactingFormatter, is_worth_a_line

__all__ = ["ErrorLine", "RecentErrors"]

_KINDS_MAX = 30
_CHARACTERS_MAX = 300
#: What :class:`~heartbeat_stream.complaints.Complaints` and the log's filter append.
_REPEATED = re.compile(r" \((\d+) more like this since the last line\)$")


class ErrorLine(msgspec.Struct):
    """A kind of line: its latest text and time, and how often it was said or held back."""

    at_ms: int
    level: str
    source: str
    text: str
    times: int = 1


class RecentErrors(logging.Handler):
    """Collects what is logged from WARNING on, a line for each kind, the latest kinds last.

    The kind is the logger and the format string. Exceptions are kept without their traceback.
    """

    def __init__(self, secrets: Iterable[str], now_ms: Callable[[], int]) -> None:
        super().__init__(logging.WARNING)
        self._now_ms = now_ms
        self._lines: OrderedDict[tuple[str, str], ErrorLine] = OrderedDict()
        self.setFormatter(RedactingFormatter(_MessageFormatter(), secrets))
        self.addFilter(is_worth_a_line)

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        held_back = _REPEATED.search(text)
        kind = record.name, _REPEATED.sub("", str(record.msg))
        known = self._lines.pop(kind, None)
        self._lines[kind] = ErrorLine(
            self._now_ms(),
            record.levelname,
            record.name.removeprefix(f"{OURS}."),
            _REPEATED.sub("", text)[:_CHARACTERS_MAX],
            (known.times if known else 0) + 1 + (int(held_back[1]) if held_back else 0),
        )
        while len(self._lines) > _KINDS_MAX:
            self._lines.popitem(last=False)

    def lines(self) -> list[ErrorLine]:
        """The latest first. May be called from any thread."""
        self.acquire()
        try:
            return list(reversed(self._lines.values()))
        finally:
            self.release()


class _MessageFormatter(logging.Formatter):
    """The message alone, on one line."""

    def format(self, record: logging.LogRecord) -> str:
        return " ".join(record.getMessage().split())
