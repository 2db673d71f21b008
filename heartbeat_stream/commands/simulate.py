"""Send a simulated fleet's heartbeats to the source topic: several devices per room, repeats, late
and out-of-order ones, a few broken ones, Chinese room names. SIGINT ends it early, with a summary.

With --job, traffic of another job: market messages, texts or tracking events, of which it is known
which are duplicates. With --verify, what workers put out meanwhile is compared with that: the last
line says how many new ones did not come (false) and how many duplicates did (missed), and the exit
code is 0 only if both are 0 and nothing is lost. Texts must go to a topic for that
(HEARTBEAT_MESSAGES_SINK=topic); of tracking events the table is read. They go to the topic, or with
--url as reports to a collector.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from typing import TYPE_CHECKING

from heartbeat_stream.commands import CommandError
from heartbeat_stream.commands.fleet_arguments import (
    add_fleet_arguments,
    add_job_argument,
    check_fleet_size,
)
from heartbeat_stream.commands.progress_line import ProgressLine
from heartbeat_stream.config.flags import fields
from heartbeat_stream.settings import Settings

if TYPE_CHECKING:
    from heartbeat_stream.local.judged_traffic import Feed
    from heartbeat_stream.local.simulate import SimulationProgress, SimulationResult

NAME = "simulate"
HELP = "send a simulated fleet's heartbeats to the topic"
EXAMPLE = """\
heartbeat-stream simulate --seconds 60 --rate 20000 --hotels 100 --rooms 1000
heartbeat-stream simulate --job tracking --url http://127.0.0.1:8106 --verify"""
SETTINGS = (
    "brokers",
    "topic",
    "source_keyed",
    *fields("Kafka security", "PostgreSQL", "Market messages", "Message filter", "Tracking"),
)
QUIET = True

#: So long what is still on its way is waited for.
_SETTLE_S = 60.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_fleet_arguments(parser, seconds=60, rate=5_000)
    add_job_argument(parser)
    parser.add_argument(
        "--verify", action="store_true", help="with --job: compare what comes out with the truth"
    )
    parser.add_argument(
        "--url",
        metavar="URL",
        help="with --job tracking: send reports to this collector, such as http://127.0.0.1:8106",
    )


def run(args: argparse.Namespace, settings: Settings) -> int:
    from heartbeat_stream.local.record_sender import SendError

    if args.job != "heartbeats":
        return _run_judged(args, settings)
    if args.verify:
        raise CommandError("--verify: want --job market, messages or tracking")
    if args.url is not None:
        raise CommandError("--url: want --job tracking, whose events a collector takes")
    check_fleet_size(args)
    try:
        result = asyncio.run(_simulate(args, settings))
    except SendError as error:
        raise CommandError(str(error)) from error
    print(_summary(result))
    return 0


async def _simulate(args: argparse.Namespace, settings: Settings) -> SimulationResult:
    from heartbeat_stream.local.simulate import simulate
    from heartbeat_stream.streaming.security import kafka_auth

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    with ProgressLine() as line:
        return await simulate(
            brokers=",".join(settings.brokers),
            topic=settings.topic,
            seconds=args.seconds,
            hotels=args.hotels,
            rooms=args.rooms,
            rate=args.rate,
            seed=args.seed,
            keyed=settings.source_keyed,
            on_progress=lambda progress: line.show(_progress(progress, args.seconds)),
            stop=stop,
            security=kafka_auth(settings),
        )


def _run_judged(args: argparse.Namespace, settings: Settings) -> int:
    from heartbeat_stream.local.demo.judged import verdict_lines
    from heartbeat_stream.local.judged_feeds import make_feed
    from heartbeat_stream.local.record_sender import SendError

    if args.url is not None and args.job != "tracking":
        raise CommandError("--url: want --job tracking, whose events a collector takes")
    feed = make_feed(args.job, args.seed, settings, args.url)
    try:
        sent = asyncio.run(_simulate_judged(args, settings, feed))
    except SendError as error:
        raise CommandError(str(error)) from error
    lines = verdict_lines(feed, sent)
    print("\n".join(lines if args.verify else lines[:-1]))
    return 1 if args.verify and feed.truth().wrong else 0


async def _simulate_judged(args: argparse.Namespace, settings: Settings, feed: Feed) -> int:
    from heartbeat_stream.local.demo.judged import Load, send_and_verify
    from heartbeat_stream.local.judged_traffic import send_feed

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    if args.verify:
        load = Load(args.seconds, args.rate, args.seed)
        return await send_and_verify(settings, feed, load, stop, settle_s=_SETTLE_S)
    with ProgressLine() as line:
        return await send_feed(
            settings,
            feed,
            seconds=args.seconds,
            rate=args.rate,
            on_progress=lambda sent, elapsed: line.show(f"{elapsed:.0f} s: {sent:,} sent"),
            stop=stop,
        )


def _progress(progress: SimulationProgress, seconds: float) -> str:
    sent = progress.counts.sent
    return (
        f"{progress.seconds:.0f} of {seconds:g} s: {sent:,} heartbeats sent, "
        f"{sent / progress.seconds:,.0f} a second"
    )


def _summary(result: SimulationResult) -> str:
    counts = result.counts
    lines = [
        f"sent       {counts.sent:,} heartbeats in {result.seconds:.1f} s, "
        f"{counts.sent / result.seconds:,.0f} a second",
        f"rooms      {len(result.oracle):,}",
        f"newer      {counts.newer:,}",
        f"duplicates {counts.duplicates:,}",
        f"late       {counts.late:,}",
        f"broken     {counts.broken.total():,}",
    ]
    lines += [f"  {reason}: {count:,}" for reason, count in counts.broken.most_common()]
    return "\n".join(lines)
