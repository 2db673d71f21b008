"""`heartbeat-stream COMMAND ...`: reads arguments and settings, runs the command, ends in order.

Exit codes: 0 done, 1 failed, 2 wrong use (an argument, a setting). What a user can cause is one
line on standard error; a traceback is a defect of this program.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from textwrap import indent
from typing import Any, NoReturn

from heartbeat_stream import __version__
from heartbeat_stream.commands import Command, CommandError, load_commands
from heartbeat_stream.config.flags import add_setting_flags, given_flags
from heartbeat_stream.logs import set_up_logs
from heartbeat_stream.settings import Settings, SettingsError

PROGRAM = "heartbeat-stream"
DONE, FAILED, WRONG_USE = 0, 1, 2

_EPILOG = """\
Example:
{example}

A setting's flag counts before its environment variable, and that before a .env file.
There are more settings than those shown: docs/configuration.md has them all.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. `argv` is without the program's name."""
    try:
        code = _main(argv)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # Who read our output has gone, as `head` does. Python would complain again at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED


def _main(argv: Sequence[str] | None) -> int:
    commands = {command.NAME: command for command in load_commands()}
    try:
        args = _parser(list(commands.values())).parse_args(argv)
    except SystemExit as end:  # argparse has printed the help, or what is wrong
        return _as_code(end.code)
    command = commands[args.command]
    try:
        settings = _load_settings(args)
        for warning in settings.warnings:
            _say(command, f"warning: {warning}")
        set_up_logs(settings, quiet=command.QUIET)
        return command.run(args, settings)
    except SettingsError as error:
        _say(command, str(error))
        return WRONG_USE
    except CommandError as error:
        _say(command, str(error))
        return FAILED
    except KeyboardInterrupt:
        _say(command, "interrupted")
        return FAILED


def _load_settings(args: argparse.Namespace) -> Settings:
    chosen: str | None = args.env_file
    if chosen is not None and not Path(chosen).is_file():
        raise SettingsError(f'--env-file: "{chosen}" is no file')
    path = Path(".env" if chosen is None else chosen)
    return Settings.load(os.environ, path, given_flags(args))


def _parser(commands: Sequence[Command]) -> argparse.ArgumentParser:
    parser = _Parser(
        prog=PROGRAM,
        description="The newest heartbeat of every room, from Kafka to PostgreSQL.",
        epilog=f"{PROGRAM} COMMAND --help tells more about a command, with an example.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    listing = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in commands:
        sub = listing.add_parser(
            command.NAME,
            help=command.HELP,
            description=_description(command),
            usage=f"{PROGRAM} {command.NAME} [options]",
            epilog=_EPILOG.format(example=indent(command.EXAMPLE, "  ")),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        command.add_arguments(sub)
        sub.add_argument("--env-file", metavar="FILE", help="settings file instead of ./.env")
        add_setting_flags(sub, command.SETTINGS)
    return parser


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def _print_message(self, message: str, file: Any = None) -> None:
        # argparse swallows what goes wrong here, a reader that has gone as well.
        if message:
            (file or sys.stderr).write(message)

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message} (see {self.prog} --help)", file=sys.stderr)
        raise SystemExit(WRONG_USE)


def _description(command: Command) -> str:
    """The module's docstring: it is written for users."""
    return (command.__doc__ or command.HELP).strip()


def _say(command: Command, text: str) -> None:
    print(f"{PROGRAM} {command.NAME}: {text}", file=sys.stderr)


def _as_code(code: object) -> int:
    return code if isinstance(code, int) else DONE if code is None else WRONG_USE
