"""Reading a `.env` file: `NAME=value` lines, as in Compose; nothing is executed or expanded."""

from __future__ import annotations

import re
from pathlib import Path

_LINE = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)", re.DOTALL)
_BARE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


class DotenvError(Exception):
    """A line that is no assignment, or a file that cannot be read. The text is one line."""


def read_dotenv(path: Path) -> dict[str, str]:
    """All assignments of the file, of a repeated name the last. Raises DotenvError."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise DotenvError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DotenvError(f"{path}: is not UTF-8 text (byte {error.start})") from error
    values: dict[str, str] = {}
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        if _BARE_NAME.fullmatch(line):
            continue  # as Compose has it: no value given here
        match = _LINE.fullmatch(line)
        value = _unquote(match[2]) if match else None
        if match is None or value is None:
            # The line itself is not repeated: it may hold a password.
            raise DotenvError(f"{path}, line {number}: want NAME=value, quotes closed")
        values[match[1]] = value
    return values


def _unquote(text: str) -> str | None:
    """The value meant by what stands right of `=`; None when its quotes are not right."""
    if text[:1] == "'":
        body, quote, rest = text[1:].partition("'")
        return body if quote and _is_comment(rest) else None
    if text[:1] == '"':
        match = re.match(r'"((?:[^"\\]|\\.)*)"', text)
        if match is None or not _is_comment(text[match.end() :]):
            return None
        return re.sub(r"\\(.)", lambda escape: _ESCAPES.get(escape[1], escape[1]), match[1])
    # Unquoted, a comment begins at a # after a space: `a#b` is a value.
    return re.split(r"(?:^|\s)#", text, maxsplit=1)[0].rstrip()


def _is_comment(rest: str) -> bool:
    rest = rest.strip()
    return not rest or rest.startswith("#")
