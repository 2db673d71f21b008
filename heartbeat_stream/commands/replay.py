"""Bring back what was lost or went wrong: rows, tables, dead letters, a stretch of the source
topic. Each says first what it would do (--dry-run: only that), and asks before it does it (--yes:
it does not). docs/replay.md has a drill for each.
"""

from __future__ import annotations

import argparse
import time
from typing import cast

from heartbeat_stream.commands.fleet_arguments import number
from heartbeat_stream.commands.recovering import add_recovery_arguments, carry_out
from heartbeat_stream.commands.subcommands import (
    Subcommand,
    add_subcommands,
    reader,
    run_subcommand,
)
from heartbeat_stream.config.flags import fields
from heartbeat_stream.core.reasons import Reason
from heartbeat_stream.recovery.moments import Moment, parse_moment, parse_time
from heartbeat_stream.settings import Settings

NAME = "replay"
HELP = "bring back rows, tables, dead letters, or a stretch of the source topic"
EXAMPLE = """\
heartbeat-stream replay rows --dry-run
heartbeat-stream replay source --from 2h"""
SETTINGS = ()
QUIET = True

_KAFKA = fields("Kafka", "Kafka security")
_BOTH = fields("Kafka", "Kafka security", "PostgreSQL")
_BOUNDS = ("min_ts_ms", "max_future_ms")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_subcommands(parser, SUBCOMMANDS)


def run(args: argparse.Namespace, settings: Settings) -> int:
    return run_subcommand(args, settings)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _moment(text: str) -> Moment:
    return parse_moment(text, _now_ms())


def _time(text: str) -> int:
    return parse_time(text, _now_ms())


# -- source --------------------------------------------------------------------------------------


def _source_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--from",
        dest="start",
        type=reader(_moment),
        required=True,
        metavar="WHEN",
        help="earliest, an offset (of every partition), a time, or 90m, 2h, 3d ago",
    )
    parser.add_argument(
        "--to", type=reader(_moment), metavar="WHEN", help="up to there, itself left out"
    )
    parser.add_argument(
        "--reset-state", action="store_true", help="empty the tables, on all workers, too"
    )
    add_recovery_arguments(parser)


def _source(args: argparse.Namespace, settings: Settings) -> int:
    from heartbeat_stream.recovery.source import SourceReplay

    start, end = cast("Moment", args.start), cast("Moment | None", args.to)
    operation = SourceReplay(
        settings, start, end, reset_state=args.reset_state, dry_run=args.dry_run
    )
    return carry_out(operation, args, settings)


# -- dead-letters --------------------------------------------------------------------------------


def _letters_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--reason",
        choices=sorted(map(str, Reason)),
        metavar="REASON",
        help="only dead letters with this one",
    )
    parser.add_argument(
        "--since",
        type=reader(_time),
        metavar="WHEN",
        help="only those since a time, or since 90m, 2h, 3d ago",
    )
    parser.add_argument(
        "--again",
        action="store_true",
        help="those, too, that the workers have refused again after they had been sent",
    )
    add_recovery_arguments(parser)


def _letters(args: argparse.Namespace, settings: Settings) -> int:
    from heartbeat_stream.recovery.dead_letters import DeadLetterReplay

    operation = DeadLetterReplay(
        settings, reason=args.reason, since_ms=args.since, again=args.again
    )
    return carry_out(operation, args, settings)


# -- rows ----------------------------------------------------------------------------------------


def _rows_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--rate",
        type=number(1, 1_000_000),
        default=5_000,
        metavar="N",
        help="rows a second at most; default: 5000",
    )
    add_recovery_arguments(parser)


def _rows(args: argparse.Namespace, settings: Settings) -> int:
    from heartbeat_stream.recovery.rows import RowReplay

    return carry_out(RowReplay(settings, args.rate), args, settings)


# -- state ---------------------------------------------------------------------------------------


def _state(args: argparse.Namespace, settings: Settings) -> int:
    from heartbeat_stream.recovery.rebuilding import StateRebuild

    return carry_out(StateRebuild(settings), args, settings)


SUBCOMMANDS = (
    Subcommand(
        "source",
        "have the workers take in the source topic again from a point in time",
        "Without --to the group's committed offsets go back; no worker may run. With --to the\n"
        "records of the range are sent to the topic again, and workers may run.",
        "heartbeat-stream replay source --from 2026-11-30T22:00:00+08:00 --dry-run\n"
        "heartbeat-stream replay source --from earliest --reset-state",
        _KAFKA,
        _source_arguments,
        _source,
    ),
    Subcommand(
        "dead-letters",
        "send dead letters to the source topic again, once each, after a fix",
        "Judges each dead letter again, and sends those that are heartbeats by now. Others stay.",
        "heartbeat-stream replay dead-letters --reason ts-too-new --since 2d",
        (*_BOTH, *_BOUNDS),
        _letters_arguments,
        _letters,
    ),
    Subcommand(
        "rows",
        "write the newest heartbeat of every room into the database",
        "For a database that was lost, or restored from an old backup. Workers may run, and need\n"
        "not. No row goes back to an older heartbeat.",
        "heartbeat-stream replay rows --rate 2000",
        (*_BOTH, "buffer_size_max"),
        _rows_arguments,
        _rows,
    ),
    Subcommand(
        "state",
        "build the tables of a new application id from the source topic",
        "Before workers are started under a new application id: with another number of\n"
        "partitions, say. Nothing goes to the database.",
        "heartbeat-stream replay state --app-id heartbeat-stream-2 --partitions 32",
        (*_KAFKA, *_BOUNDS),
        add_recovery_arguments,
        _state,
    ),
)
