"""Say what is right and wrong between the settings and the world: brokers, topics, partition
counts, database, table, data directory. Changes nothing.

Each line begins with "ok", "warn" (it works, and is not what you want in production) or "FAIL"
(a worker would not start, or not do its work), and says what to do. The exit code is 0 only if
nothing failed.
"""

from __future__ import annotations

import argparse
import asyncio

from heartbeat_stream.settings import SPECS, Settings

NAME = "check"
HELP = "compare the settings with the world, and say what to do"
EXAMPLE = "heartbeat-stream check --brokers kafka-1:9092 --database-url postgresql://app@db/hotels"
SETTINGS = tuple(spec.field for spec in SPECS)
QUIET = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Settings are all there is."""


def run(args: argparse.Namespace, settings: Settings) -> int:
    return asyncio.run(_check(settings))


async def _check(settings: Settings) -> int:
    from heartbeat_stream.checks.data_directory import check_data_directory
    from heartbeat_stream.checks.database import check_database
    from heartbeat_stream.checks.finding import Finding, would_start
    from heartbeat_stream.checks.kafka import check_kafka
    from heartbeat_stream.checks.web_view import check_web_view

    findings: list[Finding] = []

    def say(finding: Finding) -> None:
        findings.append(finding)
        print(finding, flush=True)

    async for finding in check_kafka(settings):
        say(finding)
    async for finding in check_database(settings):
        say(finding)
    for finding in check_data_directory(settings):
        say(finding)
    for finding in check_web_view(settings):
        say(finding)
    return 0 if would_start(findings) else 1
