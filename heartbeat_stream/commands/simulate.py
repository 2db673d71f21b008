"""Send a simulated fleet's heartbeats to the source topic: several devices per room, repeats, late
and out-of-order ones, a few broken ones, Chinese room names. SIGINT ends it early, with a summary.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from typing import TYPE_CHECKING

from heartbeat_stream.commands import CommandError
from heartbeat_stream.commands.fleet_arguments import add_fleet_arguments, check_fleet_size
from heartbeat_stream.commands.progress_line import ProgressLine
from heartbeat_stream.config.flags import fields
from heartbeat_stream.settings import Settings

if TYPE_CHECKING:
    from heartbeat_stream.local.simulate import SimulationProgress, SimulationResult

NAME = "simulate"
HELP = "send a simulated fleet's heartbeats to the topic"
EXAMPLE = "heartbeat-stream simulate --seconds 60 --rate 20000 --hotels 100 --rooms 1000"
SETTINGS = ("brokers", "topic", "source_keyed", *fields("Kafka security"))
QUIET = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_fleet_arguments(parser, seconds=60, rate=5_000)


def run(args: argparse.Namespace, settings: Settings) -> int:
    from heartbeat_stream.local.record_sender import SendError

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
