"""Run one collector until SIGINT or SIGTERM: it takes over HTTP what analytics SDKs report, on /sa
and /sa.gif, and brings it to Kafka. What Kafka does not take in time waits in a spool on disk,
which survives a kill. At the end the spool is drained as far as possible, and the exit code is 0.

Any number of collectors may stand behind a balancer.
"""

from __future__ import annotations

import argparse

from heartbeat_stream.config.flags import fields
from heartbeat_stream.settings import Settings

NAME = "collect"
HELP = "take the reports of analytics SDKs over HTTP, until SIGINT or SIGTERM"
EXAMPLE = """\
heartbeat-stream collect --collect-host 0.0.0.0 --collect-port 8106 --brokers kafka-1:9092
heartbeat-stream collect --tracking-place door --collect-store redis"""
SETTINGS = (
    "brokers",
    "app_id",
    "dead_letter_topic",
    *fields("Kafka security", "PostgreSQL", "Tracking", "Collector", "Log"),
    "drain_timeout_ms",
)
QUIET = False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Settings are all there is."""


def run(args: argparse.Namespace, settings: Settings) -> int:
    from heartbeat_stream.collector.run import run_collector

    return run_collector(settings)
