"""One line of what `check` says."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple


class Level(StrEnum):
    """`FAIL` keeps a worker from starting or from doing its work."""

    OK = "ok"
    WARN = "warn"
    FAIL = "FAIL"


class Finding(NamedTuple):
    level: Level
    text: str
    """One line; where something is wrong it says what to do."""

    def __str__(self) -> str:
        return f"{self.level:<4}  {' '.join(self.text.split())}"


def ok(text: str) -> Finding:
    return Finding(Level.OK, text)


def warn(text: str) -> Finding:
    return Finding(Level.WARN, text)


def fail(text: str) -> Finding:
    return Finding(Level.FAIL, text)


def would_start(findings: Iterable[Finding]) -> bool:
    """Whether none of them keeps a worker from its work."""
    return all(finding.level is not Level.FAIL for finding in findings)
