"""The log: one line per event on standard error, for people or as JSON, never with a password.

The libraries' loggers are kept short: below WARNING they are heard at the level DEBUG alone, and
what they repeat while a server is away is said once in a while.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO
from urllib.parse import unquote, urlsplit

from heartbeat_stream.settings import SPECS, Settings

OURS = "heartbeat_stream"
#: By logger, where the class of the error is from: tracebacks that tell nothing new.
_TOLD_OTHERWISE = {("aiohttp.server", "aiohttp.http_exceptions"), ("asyncio", "aiokafka.errors")}
_WIRE = "aiokafka.conn"

_PACKAGE = Path(__file__).parent
_INSTALLED = {"site-packages", "dist-packages"}
_URL_PASSWORD = re.compile(r"(\b[a-z][a-z0-9+.-]*://[^\s:/@]*):[^\s/]*@")
# Shorter ones would be found in innocent words.
_SECRET_CHARACTERS_MIN = 4


def set_up_logs(settings: Settings, *, quiet: bool = False, stream: TextIO | None = None) -> None:
    """Direct all logging of this process to `stream` (standard error). May be called again.

    `quiet` is for commands that say themselves what went wrong: only DEBUG shows the libraries'
    lines then, and of ours only warnings are heard unless somebody chose a level.
    """
    level = logging.getLevelNamesMapping()[settings.log_level]
    chosen = "HEARTBEAT_LOG_LEVEL" in settings.given
    debug = level <= logging.DEBUG
    handler = logging.StreamHandler(stream or sys.stderr)
    form = JsonFormatter() if settings.log_format == "json" else HumanFormatter()
    handler.setFormatter(RedactingFormatter(form, secrets_of(settings)))
    handler.addFilter(is_no_copy_of_the_wire)
    if not debug:
        handler.addFilter(is_worth_a_line)
        handler.addFilter(RepeatFilter())
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    libraries = max(level, logging.WARNING)
    root.setLevel(level if debug else logging.CRITICAL if quiet else libraries)
    ours = max(level, logging.WARNING) if quiet and not chosen else level
    logging.getLogger(OURS).setLevel(ours)
    logging.captureWarnings(True)


def secrets_of(settings: Settings) -> list[str]:
    """Every text that must not be seen, in each form in which it may come along."""
    secrets = {getattr(settings, spec.field) for spec in SPECS if spec.secret}
    for url in (settings.database_url, settings.collect_redis_url):
        try:
            password = urlsplit(url).password
        except ValueError:
            password = None
        if password:
            secrets |= {password, unquote(password)}
    return sorted((secret for secret in secrets if secret), key=len, reverse=True)


def is_no_copy_of_the_wire(record: logging.LogRecord) -> bool:
    """False for a line that holds a request as it is sent: a login, say, or records."""
    return record.name != _WIRE or record.levelno >= logging.INFO


def is_worth_a_line(record: logging.LogRecord) -> bool:
    """Whether a line is ours, or a warning about something of ours.

    Services that we derive from a library's log their starts and stops under our modules' names.
    A request that is no HTTP is its sender's matter, who is told so with a 400. What a broker
    refused in a task that nobody waits for any more, aiokafka has said in a line of its own.
    """
    error = record.exc_info[1] if record.exc_info else None
    if (record.name, type(error).__module__) in _TOLD_OTHERWISE:
        return False
    return record.levelno >= logging.WARNING or not _is_a_librarys(record)


def _is_a_librarys(record: logging.LogRecord) -> bool:
    if record.name != OURS and not record.name.startswith(f"{OURS}."):
        return True
    written_in = Path(record.pathname)
    return not written_in.is_relative_to(_PACKAGE) and bool(
        _INSTALLED.intersection(written_in.parts)
    )


class HumanFormatter(logging.Formatter):
    """`12:00:00.123 INFO    streaming.engine: text`, in local time."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created).astimezone()
        name = record.name.removeprefix(f"{OURS}.")
        line = f"{at:%H:%M:%S}.{int(record.msecs):03d} {record.levelname:7} {name}: "
        line += " ".join(record.getMessage().split("\n"))
        if record.exc_info:
            # The one thing that may take several lines: a defect is mended by its traceback.
            line += "\n" + self.formatException(record.exc_info)
        return line


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time (UTC), level, logger, message, and exception if any."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        event = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            event["exception"] = self.formatException(record.exc_info)
        return json.dumps(event, ensure_ascii=False)


class RedactingFormatter(logging.Formatter):
    """Another formatter's text with `***` for the passwords."""

    def __init__(self, inner: logging.Formatter, secrets: Iterable[str]) -> None:
        super().__init__()
        self._inner = inner
        self._secrets = [secret for secret in secrets if len(secret) >= _SECRET_CHARACTERS_MIN]
        # In JSON a password with a quote in it looks different.
        self._secrets += [
            escaped
            for secret in self._secrets
            if (escaped := json.dumps(secret, ensure_ascii=False)[1:-1]) != secret
        ]

    def format(self, record: logging.LogRecord) -> str:
        text = self._inner.format(record)
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return _URL_PASSWORD.sub(r"\1:***@", text)


class RepeatFilter(logging.Filter):
    """Lets a library's line of a kind pass once per interval, and says how many were left out.

    The kind is the logger and the format string. Our own lines always pass: what would repeat is
    held back where it arises (heartbeat_stream/complaints.py).
    """

    KINDS_MAX = 1_000

    def __init__(self, interval_s: float = 10.0, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._interval_s = interval_s
        self._now = now
        self._said_at: dict[tuple[str, str], float] = {}
        self._left_out: dict[tuple[str, str], int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if not _is_a_librarys(record):
            return True
        kind = record.name, str(record.msg)
        now = self._now()
        said_at = self._said_at.get(kind)
        if said_at is not None and now - said_at < self._interval_s:
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
            return False
        if len(self._said_at) >= self.KINDS_MAX:  # a library that formats its lines itself
            self._said_at.clear()
            self._left_out.clear()
        self._said_at[kind] = now
        left_out = self._left_out.pop(kind, 0)
        if left_out:
            message = record.getMessage()
            record.msg = "%s (%d more like this since the last line)"
            record.args = (message, left_out)
        return True
