"""A few lines of a terminal, drawn over and over in place, and what else is said meanwhile.

Elsewhere (a file, a pipe, a log of CI) there is no place to draw in: lines are written one after
the other.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TextIO
from unicodedata import east_asian_width

__all__ = ["Line", "Screen", "Span", "line", "text_width"]

_STYLES = {"bold": "1", "dim": "2", "green": "32", "red": "31"}
_ERASE_REST_OF_LINE = "\x1b[K"
_ERASE_BELOW = "\x1b[J"


class Span(NamedTuple):
    """Text in one style: bold, dim, green, red, or none."""

    text: str
    style: str = ""


Line = Sequence[Span]


def line(*spans: Span | str) -> Line:
    """A line of spans; bare text has no style."""
    return [Span(span) if isinstance(span, str) else span for span in spans]


def text_width(text: str) -> int:
    """How many columns a terminal needs for it: Chinese characters take two."""
    return sum(2 if east_asian_width(character) in "WF" else 1 for character in text)


def clip(text: str, width: int) -> str:
    """As much of the text's beginning as fits into so many columns."""
    for end, character in enumerate(text):
        width -= text_width(character)
        if width < 0:
            return text[:end]
    return text


class Screen:
    """Writes to `out`; `environ` tells what the terminal can and its user wants."""

    def __init__(self, out: TextIO, environ: Mapping[str, str]) -> None:
        self._out = out
        terminal = out.isatty()
        #: Whether lines can be drawn in place.
        self.live = terminal and environ.get("TERM", "dumb") != "dumb"
        self._coloured = self.live and not environ.get("NO_COLOR")
        self._drawn = 0

    def draw(self, lines: Sequence[Line]) -> None:
        """Put these lines where the last drawing was. Cut to what the terminal has room for."""
        size = self._size()
        shown = [
            self._styled(one, size.columns - 1) + _ERASE_REST_OF_LINE + "\n"
            for one in lines[: size.lines - 1]
        ]
        self._write(self._home() + "".join(shown) + _ERASE_BELOW)
        self._drawn = len(shown)

    def erase(self) -> None:
        """Take away what was drawn."""
        if self._drawn:
            # Line by line: some terminals keep a whole screen that is cleared at once.
            self._write(self._home() + f"{_ERASE_REST_OF_LINE}\n" * self._drawn + self._home())
            self._drawn = 0

    def say(self, *lines: Line) -> None:
        """Write lines that stay, whole. What was drawn goes."""
        self.erase()
        self._write("".join(self._styled(one, None) + "\n" for one in lines))

    @property
    def columns(self) -> int:
        """How wide the lines are to be that stay."""
        return self._size().columns if self.live else 100

    def _size(self) -> os.terminal_size:
        try:
            size = os.get_terminal_size(self._out.fileno())
        except (OSError, ValueError):
            size = shutil.get_terminal_size()
        return os.terminal_size((size.columns or 80, size.lines or 24))

    def _home(self) -> str:
        """To the beginning of what was drawn, also from behind a ^C that the terminal echoed."""
        return f"\r\x1b[{self._drawn}A" if self._drawn else "\r"

    def _styled(self, one: Line, width: int | None) -> str:
        parts = []
        for text, style in one:
            if width is not None:
                text = clip(text, width)
                width -= text_width(text)
            if style and text and self._coloured:
                text = f"\x1b[{_STYLES[style]}m{text}\x1b[0m"
            parts.append(text)
        return "".join(parts)

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()
