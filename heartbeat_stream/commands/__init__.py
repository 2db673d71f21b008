"""The commands, one module each. A new one is a module like `Command`, and its name in MODULES.

Such a module is imported for the list of commands alone, so it imports what its work needs only in
`run`: the command line starts fast, and a worker needs no package that only the demo needs.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib import import_module
from typing import Protocol, cast

from heartbeat_stream.settings import Settings

MODULES = (
    "worker",
    "collect",
    "demo",
    "stack",
    "init",
    "check",
    "simulate",
    "judge",
    "replay",
    "state",
    "clean",
    "selftest",
    "bench",
)


class CommandError(Exception):
    """A command failed by what a user or the world caused. The message is one line: what to do."""


class Command(Protocol):
    """What a module in here has."""

    NAME: str
    """The word on the command line."""
    HELP: str
    """One sentence for the list of commands. More than that goes into the module's docstring."""
    EXAMPLE: str
    """One or more lines that a user could type."""
    SETTINGS: Sequence[str]
    """The settings (field names) that have a flag here."""
    QUIET: bool
    """True where the command says itself what went wrong: the libraries' log is left out."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Declare what is no setting."""

    @staticmethod
    def run(args: argparse.Namespace, settings: Settings) -> int:
        """Do it and return the exit code. Raises CommandError for what a user can mend."""


def load_commands() -> list[Command]:
    """All commands, in the order in which they are listed."""
    return [cast(Command, import_module(f"{__name__}.{module}")) for module in MODULES]
