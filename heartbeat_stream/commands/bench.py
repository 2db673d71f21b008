"""Measure one worker, with all its durability on, beside the fastest that this machine could read
the topic at all, and judge it by the goals. Everything runs on this machine: an embedded broker
(which holds all in memory, about 150 bytes per heartbeat) or Apache Kafka, and an embedded
PostgreSQL. After each run every row and all state are compared with what was sent: otherwise the
run fails. All parts take about 25 minutes, with --short about 5. Needs the extras "local" and
"bench".

parts:
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import sys
from pathlib import Path

from heartbeat_stream.bench.parts import PARTS
from heartbeat_stream.commands import CommandError
from heartbeat_stream.commands.progress_line import ProgressLine
from heartbeat_stream.settings import Settings

NAME = "bench"
HELP = "the benchmarks"
EXAMPLE = """\
heartbeat-stream bench --json bench.json --chart bench.svg
heartbeat-stream bench --part keyed --broker embedded --rounds 1"""
SETTINGS = ()
QUIET = True

_BROKERS = ("embedded", "kafka")
__doc__ = (__doc__ or "") + "\n".join(f"  {name:14} {what}" for name, what in PARTS.items())


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--part", choices=tuple(PARTS), action="append", help="default: all; may be repeated"
    )
    parser.add_argument(
        "--broker", choices=_BROKERS, action="append", help="default: both; may be repeated"
    )
    parser.add_argument(
        "--brokers", metavar="HOST:PORT", help="a cluster to use, instead of starting Apache Kafka"
    )
    parser.add_argument("--short", action="store_true", help="less of everything")
    parser.add_argument("--messages", type=int, help="heartbeats, or market messages, in a topic")
    parser.add_argument("--rounds", type=int, help="measurements of each scenario; medians count")
    parser.add_argument("--json", metavar="FILE", help="write everything there, for programs")
    parser.add_argument("--chart", metavar="FILE", help="write a picture (SVG) there")
    parser.add_argument(
        "--profile",
        metavar="FILE",
        help="one more round of each scenario under py-spy, its stacks into FILE.PART.raw",
    )


def run(args: argparse.Namespace, settings: Settings) -> int:
    from heartbeat_stream.bench.worker_process import BenchError
    from heartbeat_stream.local.process import ServerError

    try:
        failures = asyncio.run(_bench(args))
    except (BenchError, ServerError) as error:
        raise CommandError(str(error)) from error
    if failures:
        raise CommandError("; ".join(failures))
    return 0


async def _bench(args: argparse.Namespace) -> list[str]:
    """What failed, a line each."""
    from heartbeat_stream.bench import report
    from heartbeat_stream.bench.profiler import Profile, top_of
    from heartbeat_stream.bench.suite import FULL, SHORT, Suite

    size = SHORT if args.short else FULL
    if args.messages:
        size = dataclasses.replace(size, messages=args.messages, market_messages=args.messages)
    if args.rounds:
        size = dataclasses.replace(size, rounds=(args.rounds,) * 3)
    profiles: list[Profile] = []

    def profile(part: str) -> Profile | None:
        if not args.profile:
            return None
        profiles.append(Profile.find(Path(f"{args.profile}.{part}.raw")))
        return profiles[-1]

    parts = [part for part in PARTS if part in (args.part or PARTS)]
    kinds = [kind for kind in _BROKERS if kind in (args.broker or _BROKERS)]
    with ProgressLine() as line:
        suite = Suite(size, parts, kinds, args.brokers, line.show)
        try:
            await suite.run(profile)
        finally:
            # What was measured before something failed is worth showing, too.
            _write(args, report.as_json(suite.results), report.as_svg(suite.results))
    print(report.as_text(suite.results))
    for one in profiles:
        print(f"\n{one.path}")
        print("   self  total  thread and function, while it held the interpreter's lock")
        for own, below, function in sorted(top_of(one.path), reverse=True)[:40]:
            print(f"  {own:5.1%} {below:6.1%}  {function}")
    return suite.results.failures


def _write(args: argparse.Namespace, results: dict[str, object], picture: str) -> None:
    for name, text in ((args.json, json.dumps(results, indent=1) + "\n"), (args.chart, picture)):
        if name is None:
            continue
        try:
            Path(name).write_text(text)
        except OSError as error:
            print(f"cannot write {name}: {error.strerror}", file=sys.stderr)
