"""``python -m tests.soak.run``: steady load and a fault a minute, then the verdict over everything.

Ends with 0 and a line ``differences: 0`` where nothing was lost or written too early. The course of
it is drawn as an SVG picture, and told on a page beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path

from heartbeat_stream.local.apache_kafka import ApacheKafka
from heartbeat_stream.local.fleet import Fleet
from heartbeat_stream.local.postgres import PostgresServer
from tests.soak.chart import chart
from tests.soak.ground import Ground
from tests.soak.injectors import INJECTORS, Injector
from tests.soak.recorder import Event, Recorder
from tests.soak.report import page
from tests.support.verdict import all_is_right
from tests.support.world import load


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--every", type=float, default=60.0, help="seconds from fault to fault")
    parser.add_argument("--rooms", type=int, default=20_000)
    parser.add_argument("--rate", type=float, default=2_000.0, help="heartbeats a second")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument(
        "--faults", nargs="+", metavar="FAULT", help="these in turn, instead of all by the seed"
    )
    parser.add_argument("--page", type=Path, default=Path("soak.md"), help="with a chart beside it")
    return parser.parse_args()


def drawn(seed: int, names: Sequence[str] | None) -> list[Injector]:
    """The faults in the order in which they come: as named, or all of them as the seed has it."""
    if names:
        by_name = {inject.__name__: inject for inject in INJECTORS}
        return [by_name[name] for name in names]
    order = list(INJECTORS)
    random.Random(seed).shuffle(order)
    return order


async def soak(options: argparse.Namespace, ground: Ground) -> str:
    """Do it all. Answers what there is to say; raises AssertionError with what was wrong."""
    await ground.world.prepare()
    for _ in range(options.workers):
        await ground.start_worker()
    fleet = Fleet(hotels=100, rooms_per_hotel=options.rooms // 100, seed=options.seed)
    recorder = Recorder(ground)
    recording = asyncio.create_task(recorder.run())
    seconds = options.minutes * 60
    order = drawn(options.seed, options.faults)
    verdict = "It has failed"
    try:
        async with load(ground.world, fleet, options.rate) as running:
            for number in range(int(seconds // options.every)):
                due = (number + 0.5) * options.every
                await asyncio.sleep(max(0.0, due - recorder.elapsed()))
                inject = order[number % len(order)]
                begins = recorder.elapsed()
                say(f"{begins:6.0f} s  {inject.__name__}")
                await inject(ground)
                recorder.events.append(Event(begins, recorder.elapsed(), inject.__name__))
            await asyncio.sleep(max(0.0, seconds - recorder.elapsed()))
        say(f"{recorder.elapsed():6.0f} s  the load has ended: {running.sent:,} heartbeats")
        await all_is_right(
            ground.world, running.oracle, crashes=ground.all_crashes(), outage=True, seconds=180
        )
        verdict = f"{running.sent:,} heartbeats, differences: 0"
    finally:
        recording.cancel()
        await asyncio.wait([recording])
        title = (
            f"{options.minutes:g} minutes, {options.rate:g} heartbeats/s, {options.rooms:,} rooms, "
            f"{options.workers} workers, {len(recorder.events)} faults (seed {options.seed})"
        )
        write_down(options, title, verdict, recorder)
    for worker in ground.workers:
        await worker.stopped(60)
    return f"{title}: {running.sent:,} heartbeats\ndifferences: 0"


def write_down(options: argparse.Namespace, title: str, verdict: str, recorder: Recorder) -> None:
    """The page, and its chart under the same name."""
    picture = options.page.with_suffix(".svg")
    picture.write_text(
        chart(title, recorder.samples, recorder.lags, recorder.events, recorder.elapsed()), "utf-8"
    )
    command = (
        f'make soak SOAK_ARGS="--minutes {options.minutes:g} --every {options.every:g} '
        f'--seed {options.seed}"'
    )
    options.page.write_text(page(title, command, picture.name, verdict, recorder), "utf-8")
    say(f"written: {options.page}, {picture}")


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


def main() -> int:
    options = arguments()
    say(f"seed {options.seed}")
    for library in ("aiokafka", "asyncio"):  # which say ten times a second who is away
        logging.getLogger(library).setLevel(logging.CRITICAL)
    with (
        tempfile.TemporaryDirectory(prefix="soak-") as name,
        ApacheKafka() as kafka,
        PostgresServer() as postgres,
    ):
        ground = Ground.prepare(kafka, postgres, Path(name), options.seed)
        try:
            say(asyncio.run(soak(options, ground)))
        except AssertionError:
            traceback.print_exc()
            for worker in ground.workers:
                say(worker.log_end())
            return 1
        finally:
            for worker in ground.workers:
                worker.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
