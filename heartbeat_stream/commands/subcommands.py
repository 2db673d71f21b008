"""Commands that have commands of their own: `replay rows`, `state get` and so on."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from textwrap import indent
from typing import NamedTuple

from heartbeat_stream.config.flags import add_setting_flags
from heartbeat_stream.settings import Settings


class Subcommand(NamedTuple):
    """What `Command` is to the program, this is to a command."""

    name: str
    help: str
    description: str
    example: str
    settings: Sequence[str]
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace, Settings], int]


def add_subcommands(parser: argparse.ArgumentParser, subcommands: Sequence[Subcommand]) -> None:
    """Declare them. What was chosen is run by :func:`run_subcommand`."""
    listing = parser.add_subparsers(
        dest="subcommand", metavar="WHAT", required=True, prog=parser.prog
    )
    for one in subcommands:
        sub = listing.add_parser(
            one.name,
            help=one.help,
            description=one.description,
            epilog=f"Example:\n{indent(one.example, '  ')}\n\n"
            "More settings: docs/configuration.md. Step by step: docs/replay.md.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        one.add_arguments(sub)
        # It may stand before the subcommand, too, and then counts.
        sub.add_argument(
            "--env-file", metavar="FILE", default=argparse.SUPPRESS, help="instead of ./.env"
        )
        add_setting_flags(sub, one.settings)
        sub.set_defaults(run_subcommand=one.run)


def run_subcommand(args: argparse.Namespace, settings: Settings) -> int:
    """Do what was chosen; the exit code."""
    run: Callable[[argparse.Namespace, Settings], int] = args.run_subcommand
    return run(args, settings)


def reader(read: Callable[[str], object]) -> Callable[[str], object]:
    """For `type=`: a function whose ValueError says what would be right."""

    def typed(text: str) -> object:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return typed
