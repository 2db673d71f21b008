"""The demo of a job that judges messages: traffic with known truth, a worker, and the verdict."""

from __future__ import annotations

import argparse
import asyncio
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple

from aiokafka.errors import KafkaError

from heartbeat_stream.commands import CommandError
from heartbeat_stream.commands import init as init_command
from heartbeat_stream.commands.progress_line import ProgressLine
from heartbeat_stream.local.demo.door import check_demo_door, open_demo_door
from heartbeat_stream.local.demo.screen import Screen, line
from heartbeat_stream.local.demo.worker import start_worker
from heartbeat_stream.local.judged_feeds import make_feed
from heartbeat_stream.local.judged_traffic import Feed, send_feed
from heartbeat_stream.local.process import ServerError
from heartbeat_stream.local.record_sender import SendError
from heartbeat_stream.local.stack import EmbeddedStack
from heartbeat_stream.settings import Settings

__all__ = ["Load", "run_judged_demo", "send_and_verify", "verdict_lines"]

_SETTLE_S = 60.0
_SHOWN = 60


class Load(NamedTuple):
    """What is sent."""

    seconds: float
    rate: float
    seed: int


def run_judged_demo(job: str, chosen: Mapping[str, str], load: Load, screen: Screen) -> int:
    """Run a job on servers of its own; 0 only if every verdict was right.

    Raises CommandError where something fails.
    """
    try:
        return asyncio.run(_run(job, chosen, load, screen))
    except (ServerError, SendError, KafkaError, OSError) as error:
        raise CommandError(str(error) or type(error).__name__) from error


async def _run(job: str, chosen: Mapping[str, str], load: Load, screen: Screen) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    if _is_at_the_door(job, chosen):
        check_demo_door(Settings.load(chosen))
    screen.say(line("starting   a broker and PostgreSQL"))
    stack = EmbeddedStack()
    try:
        await asyncio.to_thread(stack.start)
        environment = {
            **stack.environment,
            **chosen,
            "HEARTBEAT_JOBS": job,
            "HEARTBEAT_MESSAGES_SINK": "topic",
        }
        settings = Settings.load(environment)
        if await asyncio.to_thread(init_command.run, argparse.Namespace(), settings):
            raise ServerError("the topics could not be made")
        screen.say(line(f"starting   a worker, log in {stack.directory}/worker.log"))
        worker = await start_worker(stack, environment, stop)
        try:
            async with _door(job, stack, environment, screen) as url:
                feed = make_feed(job, load.seed, settings, url)
                sent = await send_and_verify(settings, feed, load, stop, settle_s=_SETTLE_S)
                screen.say(line("ending     all of them"))
            code = await worker.end()
        finally:
            await worker.close()
    finally:
        await asyncio.to_thread(stack.close)
    screen.say(*(line(text) for text in verdict_lines(feed, sent)))
    if code != 0:
        raise ServerError(f"the worker ended with {code}")
    return 1 if feed.truth().wrong else 0


def _is_at_the_door(job: str, environment: Mapping[str, str]) -> bool:
    return job == "tracking" and Settings.load(environment).tracking_place == "door"


@asynccontextmanager
async def _door(
    job: str, stack: EmbeddedStack, environment: Mapping[str, str], screen: Screen
) -> AsyncIterator[str | None]:
    """The URL of a collector, where it is one that judges."""
    if not _is_at_the_door(job, environment):
        yield None
        return
    settings = Settings.load(environment)
    screen.say(
        line(
            f"starting   a collector that remembers what it has seen in {settings.collect_store},"
        ),
        line(f"           log in {stack.directory}/collect.log"),
    )
    async with open_demo_door(stack, environment) as url:
        yield url


async def send_and_verify(
    settings: Settings, feed: Feed, load: Load, stop: asyncio.Event, *, settle_s: float
) -> int:
    """Send the traffic and wait for what comes of it, ``settle_s`` seconds at most; how many."""
    with ProgressLine() as shown:
        async with feed.watching(settings) as watcher:

            def show(sent: int, elapsed: float) -> None:
                newest = watcher.newest[:_SHOWN].replace("\n", " ")
                shown.show(
                    f"{elapsed:.0f} of {load.seconds:g} s: {sent:,} sent, {watcher.taken:,} came "
                    f"out, the last one: {newest}"
                )

            sent = await send_feed(
                settings,
                feed,
                seconds=load.seconds,
                rate=load.rate,
                on_progress=show,
                stop=stop,
            )
            await watcher.until_all(feed.expected, settle_s, lambda: show(sent, load.seconds))
    return sent


def verdict_lines(feed: Feed, sent: int) -> list[str]:
    """What was sent and what became of it, for people; the last line is the verdict."""
    truth = feed.truth()
    lines = [f"{'sent':<18}{sent:>10,}"]
    lines += [f"  {kind:<16}{count:>10,}" for kind, count in sorted(feed.counts.items())]
    lines.append(f"{'should come out':<18}{feed.expected:>10,}")
    if truth.repeated:
        lines.append(f"{'came out again':<18}{truth.repeated:>10,}")
    if truth.lost:
        lines.append(f"{'lost':<18}{truth.lost:>10,}")
    lines.append(f"false: {truth.false:,}, missed: {truth.missed:,}")
    return lines
