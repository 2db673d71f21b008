"""Try a system that runs: send known reports through it, single, in batches, compressed, repeated,
and such as have no identity, and say how many rows should be there and how many are, by kind. The
exit code is 0 only if they agree.

With --tracking-place kafka they go to the topic as a collector would write them, with door over
HTTP to a collector, as always with --url. They belong to the project heartbeat-stream-selftest, and
stay in the table: docs/tracking.md says how to remove them.
"""

from __future__ import annotations

import argparse

from heartbeat_stream.commands import CommandError
from heartbeat_stream.commands.fleet_arguments import number
from heartbeat_stream.config.flags import fields
from heartbeat_stream.settings import Settings

NAME = "selftest"
HELP = "send known reports through a running system, and compare its rows"
EXAMPLE = """\
heartbeat-stream selftest tracking
heartbeat-stream selftest tracking --tracking-place door --url http://collector:8106"""
SETTINGS = (
    *fields("Kafka security"),
    *(field for field in fields("PostgreSQL") if field != "table"),
    "brokers",
    "tracking_topic",
    "tracking_table",
    "tracking_policy",
    "tracking_place",
    "collect_host",
    "collect_port",
)
QUIET = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", metavar="WHAT", choices=("tracking",), help="tracking")
    parser.add_argument("--url", metavar="URL", help="of the collector that takes the reports")
    parser.add_argument(
        "--seconds",
        type=number(0, 86_400),
        default=60,
        metavar="N",
        help="how long to wait for the rows; default: 60",
    )


def run(args: argparse.Namespace, settings: Settings) -> int:
    from heartbeat_stream.commands.progress_line import ProgressLine
    from heartbeat_stream.commands.recovering import run_reported
    from heartbeat_stream.selftest.tracking import run_selftest, what_is_wrong

    with ProgressLine() as line:
        outcome = run_reported(run_selftest(settings, args.url, args.seconds, line.show), settings)
    for text in outcome.lines():
        print(text, flush=True)
    if not outcome.agrees:
        raise CommandError(what_is_wrong(outcome, settings))
    print("all rows are as they should be")
    return 0
