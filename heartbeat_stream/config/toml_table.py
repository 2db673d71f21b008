"""Reading one table of a TOML file so that every mistake becomes a line that says what is right."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection
from enum import StrEnum
from typing import Any, TypeVar

from heartbeat_stream.config.sources import SettingsError

__all__ = ["TomlTable"]

E = TypeVar("E", bound=StrEnum)
T = TypeVar("T")

_SHOWN = 60
_MISSING: Any = object()


class TomlTable:
    """A table, the file it stands in and the dotted path to it.

    Each method takes one key out and raises :class:`SettingsError` where its value is wrong, or is
    missing without a default. :meth:`end` raises it for keys that nobody asked for.
    """

    def __init__(self, source: str, path: str, values: dict[str, Any]) -> None:
        self._source = source
        self._path = path
        self._values = dict(values)
        self._known: list[str] = []

    def text(self, key: str, default: str = _MISSING) -> str:
        """Some text, not empty."""
        return self._take(key, default, _is_text, "some text")

    def texts(self, key: str, default: tuple[str, ...] = _MISSING) -> tuple[str, ...]:
        """A list of texts, each once."""
        value = self._take(key, default, _is_texts, 'a list of names, each once, as in ["a", "b"]')
        return tuple(value)

    def scalars(self, key: str, default: tuple[str | int, ...]) -> tuple[str | int, ...]:
        """A list of texts and whole numbers."""
        wants = 'a list of texts and whole numbers, as in [0, ""]'
        return tuple(self._take(key, default, _is_scalars, wants))

    def integer(self, key: str, low: int, high: int, default: int = _MISSING) -> int:
        """A whole number in bounds, both inclusive."""

        def in_bounds(value: Any) -> bool:
            return type(value) is int and low <= value <= high

        wants = f"a whole number from {low} to {high}"
        return self._take(key, default, in_bounds, wants)

    def choice(self, key: str, kind: type[E], default: E = _MISSING, but: Collection[E] = ()) -> E:
        """One of an enumeration's values, except some."""
        words = [member.value for member in kind if member not in but]
        wants = "one of " + ", ".join(f'"{word}"' for word in words)
        return kind(self._take(key, default, lambda value: value in words, wants))

    def table(self, key: str) -> TomlTable | None:
        """The table under this key, or None."""
        value = self._take(key, None, lambda value: isinstance(value, dict), "a table")
        return None if value is None else TomlTable(self._source, self._join(key), value)

    def tables(self, key: str) -> list[TomlTable]:
        """A list of tables, perhaps empty."""
        none: list[dict[str, Any]] = []
        value = self._take(key, none, _is_tables, "a list of tables")
        return [
            TomlTable(self._source, f"{self._join(key)}[{place}]", table)
            for place, table in enumerate(value)
        ]

    def tables_by_name(self) -> dict[str, TomlTable]:
        """All that is left, which must be tables."""
        found = {}
        for key in list(self._values):
            table = self.table(key)
            assert table is not None
            found[key] = table
        return found

    def end(self) -> None:
        """Nothing may be left."""
        for key in self._values:
            close = difflib.get_close_matches(key, self._known, n=1)
            hint = f'did you mean "{close[0]}"?' if close else f"want {', '.join(self._known)}"
            raise SettingsError(f"{self._source}: {self._join(key)} is not known: {hint}")

    def error(self, key: str, text: str) -> SettingsError:
        """For what only becomes wrong together with something else."""
        return SettingsError(f"{self._source}: {self._join(key)}: {text}")

    def _take(self, key: str, default: T, is_right: Callable[[Any], bool], wants: str) -> T:
        self._known.append(key)
        value = self._values.pop(key, _MISSING)
        if value is _MISSING:
            if default is _MISSING:
                raise SettingsError(f"{self._source}: {self._join(key)} is missing: want {wants}")
            return default
        if not is_right(value):
            raise self.error(key, f"{_shown(value)} is wrong: want {wants}")
        return value  # type: ignore[no-any-return]

    def _join(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value)) and len(set(value)) == len(value)


def _is_scalars(value: Any) -> bool:
    return isinstance(value, list) and all(type(each) in (str, int) for each in value)


def _is_tables(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, dict) for each in value)


def _shown(value: Any) -> str:
    text = f'"{value}"' if isinstance(value, str) else repr(value)
    text = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
    return repr(text)[1:-1]
