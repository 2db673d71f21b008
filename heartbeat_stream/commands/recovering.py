"""Recoveries on the command line: what would be done, a question, progress, what was done."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from heartbeat_stream.commands import CommandError
from heartbeat_stream.commands.progress_line import ProgressLine
from heartbeat_stream.settings import Settings

if TYPE_CHECKING:
    from heartbeat_stream.recovery.operation import Operation

Result = TypeVar("Result")


def add_recovery_arguments(parser: argparse.ArgumentParser) -> None:
    """What every command has that changes something."""
    parser.add_argument(
        "--dry-run", action="store_true", help="say exactly what would happen, and change nothing"
    )
    parser.add_argument("--yes", action="store_true", help="do it without asking")


def carry_out(operation: Operation, args: argparse.Namespace, settings: Settings) -> int:
    """Say what it would do; ask; do it. Raises CommandError."""
    with ProgressLine() as line:
        plan = run_reported(operation.plan(line.show), settings)
    for text in plan:
        print(text, flush=True)
    if args.dry_run:
        print("nothing was changed: this was --dry-run")
        return 0
    if not args.yes:
        _confirm()
    with ProgressLine() as line:
        done, problem = run_reported(_done(operation, line), settings)
    for text in done:
        print(text, flush=True)
    if problem is not None:
        raise CommandError(problem)
    return 0


async def _done(operation: Operation, line: ProgressLine) -> tuple[Sequence[str], str | None]:
    """Do it; what was done, and what was not."""
    from heartbeat_stream.recovery.errors import PartlyDone

    try:
        return await operation.run(line.show), None
    except PartlyDone as error:
        return error.done, str(error)


def run_reported(work: Coroutine[Any, Any, Result], settings: Settings) -> Result:
    """Run it, and turn what may go wrong into a CommandError of one line.

    A signal to end lets it tidy up first: a temporary directory may be as large as the tables.
    """
    try:
        return asyncio.run(_reported(work, settings))
    except asyncio.CancelledError:
        raise CommandError("interrupted") from None


def _confirm() -> None:
    """Raises CommandError unless somebody at a terminal says yes."""
    if not sys.stdin.isatty():
        raise CommandError("nobody can be asked here: repeat it with --yes, or with --dry-run")
    print("Go on? Type yes or y: ", end="", flush=True)
    if sys.stdin.readline().strip().lower() not in ("yes", "y"):
        raise CommandError("nothing was changed")


def _end_on_signals() -> None:
    """As Ctrl-C does, but for those who have no keyboard: a container's end, a terminal's."""
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has it
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)


async def _reported(work: Coroutine[Any, Any, Result], settings: Settings) -> Result:
    from aiokafka.errors import KafkaConnectionError, KafkaError

    from heartbeat_stream.checks import database
    from heartbeat_stream.recovery.errors import RecoveryError
    from heartbeat_stream.sinks.postgres_errors import SinkUnavailable
    from heartbeat_stream.streaming.diagnosis import why_unreachable
    from heartbeat_stream.streaming.store import StoreError
    from heartbeat_stream.streaming.topic_admin import TopicError

    _end_on_signals()
    try:
        return await work
    except BrokenPipeError:
        raise  # whoever read our output has gone
    except SinkUnavailable as error:
        raise CommandError(database.unavailable(settings, error)) from error
    except (RecoveryError, TopicError) as error:
        raise CommandError(str(error)) from error
    except StoreError as error:
        raise CommandError(f"{error}: set TMPDIR to where there is room") from error
    except (KafkaConnectionError, OSError, TimeoutError) as error:
        why = await why_unreachable(settings)
        raise CommandError(f"{why} ({type(error).__name__})") from error
    except KafkaError as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise CommandError(f"the brokers refuse it: {why}") from error
