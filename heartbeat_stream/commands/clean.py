"""Clean the table of tracking events afterwards. Of the copies of an event the one with the
smallest _flush_time is kept; of equal ones, and of those without any, the one that stands first in
Kafka. It loses a du- that its remark began with, and the others are marked with it, or deleted.

--from and --to are times at which events were received (received_at). Says first what it would do
(--dry-run: only that), and asks before it does it (--yes: it does not). Workers may run. Done once
more it changes nothing. docs/tracking.md has the details.
"""

from __future__ import annotations

import argparse
import time

from heartbeat_stream.commands.fleet_arguments import whole
from heartbeat_stream.commands.recovering import add_recovery_arguments, carry_out
from heartbeat_stream.commands.subcommands import reader
from heartbeat_stream.config.flags import fields
from heartbeat_stream.recovery.moments import parse_time
from heartbeat_stream.settings import Settings

NAME = "clean"
HELP = "mark or delete the copies among the stored tracking events, afterwards"
EXAMPLE = """\
heartbeat-stream clean --project shop --from 2026-11-30 --to 2026-12-01 --dry-run
heartbeat-stream clean --project shop --from 2d --to 1h --yes"""
SETTINGS = (
    *(field for field in fields("PostgreSQL") if field != "table"),
    "tracking_table",
    "tracking_signup",
    "tracking_window_ms",
)
QUIET = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--project", type=reader(_project), required=True, metavar="NAME", help="whose events"
    )
    for flag, name, meaning in (
        ("--from", "start", "events received since a time, or since 90m, 2h, 3d ago"),
        ("--to", "end", "and before this one; 0s is now"),
    ):
        parser.add_argument(
            flag, dest=name, type=reader(_time), required=True, metavar="WHEN", help=meaning
        )
    parser.add_argument(
        "--delete", action="store_true", help="delete the others, instead of marking them"
    )
    parser.add_argument(
        "--batch",
        type=whole(1, 10_000),
        default=500,
        metavar="N",
        help="so many events with copies in one transaction; default: 500",
    )
    add_recovery_arguments(parser)


def run(args: argparse.Namespace, settings: Settings) -> int:
    from heartbeat_stream.recovery.cleaning import EventCleaning
    from heartbeat_stream.recovery.event_groups import Scope
    from heartbeat_stream.sinks.table import Table

    scope = Scope(
        table=Table.parse(settings.tracking_table),
        project=args.project,
        start_ms=args.start,
        end_ms=args.end,
        margin_ms=settings.tracking_window_ms,
        signup=settings.tracking_signup,
    )
    operation = EventCleaning(settings, scope, delete=args.delete, batch=args.batch)
    return carry_out(operation, args, settings)


def _project(text: str) -> str:
    if not text or "\0" in text:
        raise ValueError("want the name of a project")
    return text


def _time(text: str) -> int:
    return parse_time(text, time.time_ns() // 1_000_000)
