"""The whole pipeline on this machine: an embedded broker and PostgreSQL, a simulated fleet and a
worker, with a live view of what they do and a summary at the end. Needs the extra "local", and
leaves nothing behind. Ctrl-C ends it early.

The exit code is 0 only if every row was right.

With --job, another job is shown instead: traffic of which it is known what is a duplicate of what,
and at the end how many verdicts were wrong. Tracking events are judged behind Kafka, or with
--tracking-place door by a collector, to which they are sent as SDKs send them.
"""

from __future__ import annotations

import argparse
import os
import sys

from heartbeat_stream.commands.fleet_arguments import (
    add_fleet_arguments,
    add_job_argument,
    check_fleet_size,
)
from heartbeat_stream.config.flags import fields
from heartbeat_stream.settings import BY_FIELD, Settings

NAME = "demo"
HELP = "the whole pipeline on this machine, with a simulated fleet"
EXAMPLE = """\
heartbeat-stream demo --seconds 20 --hotels 50 --rooms 200 --rate 5000
heartbeat-stream demo --job tracking --tracking-place door --collect-store postgres"""
# Others would lead to servers of the user's own, or make dead letters of what the fleet sends.
SETTINGS = (
    "source_keyed",
    "partitions",
    "buffer_window_ms",
    "buffer_size_max",
    "cooldown_ms",
    "checkpoint_ms",
    "tracking_place",
    "tracking_policy",
    "collect_store",
    *fields("Web view", "Log"),
)
QUIET = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    # A room's second write is due 35 s after its first heartbeat: so both layers are seen at work,
    # and a few seconds later every row is the newest.
    add_fleet_arguments(parser, seconds=33, rate=2_000)
    add_job_argument(parser)


def run(args: argparse.Namespace, settings: Settings) -> int:
    check_fleet_size(args)
    chosen = {
        spec.variable: settings.shown(spec.field)
        for spec in map(BY_FIELD.__getitem__, SETTINGS)
        if spec.variable in settings.given
    }
    try:
        if args.job != "heartbeats":
            return _run_judged(args, chosen)
        from heartbeat_stream.local.demo import FleetSize, run_demo

        size = FleetSize(args.seconds, args.hotels, args.rooms, args.rate, args.seed)
        return run_demo(chosen, size)
    except KeyboardInterrupt:  # before anything else listens for it
        print("ended before the first heartbeat was sent")
        return 0


def _run_judged(args: argparse.Namespace, chosen: dict[str, str]) -> int:
    from heartbeat_stream.local.demo.judged import Load, run_judged_demo
    from heartbeat_stream.local.demo.screen import Screen

    load = Load(args.seconds, args.rate, args.seed)
    return run_judged_demo(args.job, chosen, load, Screen(sys.stdout, os.environ))
