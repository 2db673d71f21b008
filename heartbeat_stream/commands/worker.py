"""Run one worker until SIGINT or SIGTERM. It then ends the writes in flight, makes its state
durable, commits what it has read and exits with 0. A second signal ends it at once.

Several workers with the same app id share the partitions of the topic.
"""

from __future__ import annotations

import argparse
import signal
import sys
from types import FrameType

from heartbeat_stream.settings import SPECS, Settings

NAME = "worker"
HELP = "run one worker until SIGINT or SIGTERM"
EXAMPLE = """\
heartbeat-stream worker --brokers kafka-1:9092,kafka-2:9092 --topic heartbeat
HEARTBEAT_BROKERS=kafka-1:9092 HEARTBEAT_DATA_DIR=/var/lib/heartbeat heartbeat-stream worker"""
SETTINGS = tuple(spec.field for spec in SPECS)
QUIET = False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Settings are all there is."""


def run(args: argparse.Namespace, settings: Settings) -> int:
    # Until the worker listens to them: loading what it needs takes a second.
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, _end_before_the_start)
    from heartbeat_stream.app import run_worker

    return run_worker(settings)


def _end_before_the_start(_signum: int, _frame: FrameType | None) -> None:
    sys.exit(0)
