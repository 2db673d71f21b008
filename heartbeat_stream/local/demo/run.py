"""The course of a demo: servers, topics and table, worker, fleet, settling, comparing, the end."""

from __future__ import annotations

import argparse
import asyncio
import io
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import asyncpg
from aiokafka.errors import KafkaError

from heartbeat_stream.commands import CommandError
from heartbeat_stream.commands import init as init_command
from heartbeat_stream.local.demo.baseline import Baseline, follow_topic
from heartbeat_stream.local.demo.comparison import Comparison, sample
from heartbeat_stream.local.demo.judging import judge, take_snapshot
from heartbeat_stream.local.demo.screen import Screen, line
from heartbeat_stream.local.demo.settling import Settling
from heartbeat_stream.local.demo.summary import Outcome, summary
from heartbeat_stream.local.demo.watching import FleetSize, Watcher
from heartbeat_stream.local.demo.worker import DemoWorker, start_worker
from heartbeat_stream.local.process import ServerError
from heartbeat_stream.local.simulate import SendError, SimulationResult, simulate
from heartbeat_stream.local.stack import EmbeddedStack
from heartbeat_stream.settings import Settings
from heartbeat_stream.sinks.table import Table

__all__ = ["run_demo"]

_SAMPLE_ROWS = 6
_FAILURES = (
    ServerError,
    SendError,
    KafkaError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    OSError,
)


def run_demo(chosen: Mapping[str, str], size: FleetSize) -> int:
    """Run the whole pipeline with these settings (by variable) beside the stack's own.

    Returns 0 where all is as it must be, also where SIGINT or SIGTERM ended it early. Raises
    CommandError where something is not. A second signal ends this process at once; whatever it has
    started ends with it.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # Chinese room names on a terminal of old
    try:
        return asyncio.run(_Demo(chosen, size).run())
    except BrokenPipeError:  # of our own output
        raise
    except _FAILURES as error:
        raise CommandError(str(error) or type(error).__name__) from error


@contextmanager
def _stop_on_signals() -> Iterator[asyncio.Event]:
    """An event that the first SIGINT or SIGTERM sets. The second one is deadly."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    signals = (signal.SIGINT, signal.SIGTERM)

    def on_signal() -> None:
        stop.set()
        for number in signals:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)

    for number in signals:
        loop.add_signal_handler(number, on_signal)
    yield stop


class _Demo:
    def __init__(self, chosen: Mapping[str, str], size: FleetSize) -> None:
        self._chosen = chosen
        self._size = size
        self._screen = Screen(sys.stdout, os.environ)

    async def run(self) -> int:
        with _stop_on_signals() as stop:
            outcome = await self._with_stack(stop)
        if outcome is None:
            self._screen.say(line("ended before the first heartbeat was sent"))
            return 0
        self._screen.say(*summary(outcome, self._screen.columns))
        if outcome.problems:
            more = len(outcome.problems) - 1
            raise CommandError(outcome.problems[0] + (f" (and {more} more)" if more else ""))
        return 0

    async def _with_stack(self, stop: asyncio.Event) -> Outcome | None:
        """None where it was stopped before anything was sent."""
        self._screen.say(line("starting   a broker and PostgreSQL"))
        stack = EmbeddedStack()
        try:
            await asyncio.to_thread(stack.start)
            environment = {**stack.environment, **self._chosen}
            settings = Settings.load(environment)
            if stop.is_set():
                return None
            if await asyncio.to_thread(init_command.run, argparse.Namespace(), settings):
                raise ServerError("the table could not be made")
            self._screen.say(line(f"starting   a worker, log in {stack.directory}/worker.log"))
            worker = await start_worker(stack, environment, stop)
            try:
                if stop.is_set():
                    return None
                outcome = await self._with_worker(stack, worker, settings, stop)
                self._screen.say(line("ending     the worker and the servers"))
                code = await worker.end()
                if code != 0:
                    outcome.problems.append(
                        "the worker did not end within 20 s"
                        if code is None
                        else f"the worker ended with exit code {code}"
                    )
                return outcome
            finally:
                await worker.close()
        finally:
            await asyncio.to_thread(stack.close)

    async def _with_worker(
        self, stack: EmbeddedStack, worker: DemoWorker, settings: Settings, stop: asyncio.Event
    ) -> Outcome:
        baseline = Baseline(settings)
        connection = await asyncpg.connect(settings.database_url, timeout=10.0)
        try:
            async with follow_topic(settings, baseline) as follower:
                watcher = Watcher(
                    screen=self._screen,
                    stack=stack,
                    worker=worker,
                    connection=connection,
                    settings=settings,
                    size=self._size,
                    baseline=baseline,
                    follower=follower,
                )
                result = await self._send(watcher, settings, stop)
                settling = Settling(watcher, settings, result.counts.sent, stop)
                await settling.run()
                return await self._outcome(watcher, settling, result, settings, connection)
        finally:
            connection.terminate()

    async def _send(
        self, watcher: Watcher, settings: Settings, stop: asyncio.Event
    ) -> SimulationResult:
        size = self._size
        started = time.monotonic()
        fleet = asyncio.create_task(
            simulate(
                brokers=",".join(settings.brokers),
                topic=settings.topic,
                seconds=size.seconds,
                hotels=size.hotels,
                rooms=size.rooms,
                rate=size.rate,
                seed=size.seed,
                keyed=settings.source_keyed,
                stop=stop,
            )
        )
        try:
            while not fleet.done():
                sent_for = min(time.monotonic() - started, size.seconds)
                await watcher.look(f"{sent_for:.0f} of {size.seconds:g} s")
            return fleet.result()
        finally:
            fleet.cancel()
            await asyncio.wait({fleet})

    async def _outcome(
        self,
        watcher: Watcher,
        settling: Settling,
        sent: SimulationResult,
        settings: Settings,
        connection: asyncpg.Connection,
    ) -> Outcome:
        snapshot = await take_snapshot(watcher, connection, Table.parse(settings.table))
        problems = settling.problems
        comparison: Comparison | None = None
        if settling.caught_up:
            comparison, wrong = judge(snapshot, sent)
            problems += wrong
        return Outcome(
            seconds=sent.seconds,
            fleet=watcher.fleet,
            figures=snapshot.after,
            baseline=watcher.baseline.writes,
            rooms=len(snapshot.rows),
            comparison=comparison,
            no_lag_after_s=settling.no_lag_after_s,
            sample=sample(snapshot.rows, _SAMPLE_ROWS),
            window_ms=settings.buffer_window_ms,
            problems=problems,
        )
