"""Traffic of which it is known what is a duplicate of what, through real workers: no verdict is
wrong. As users see it, too: `simulate --verify`, `demo --job`."""

from __future__ import annotations

import asyncio
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from heartbeat_stream.core.tracking_record import Verdict
from heartbeat_stream.local.demo.judged import Load, send_and_verify, verdict_lines
from heartbeat_stream.local.judged_feeds import make_feed
from heartbeat_stream.local.judged_traffic import Truth
from tests.support.brokers import on_embedded
from tests.support.door import PATIENT, open_door
from tests.support.program import run_program
from tests.support.tracking import prepare_tracking
from tests.support.world import World

JOBS = ("market", "messages", "tracking")
SENT = 10_000
NOWHERE = "postgresql://127.0.0.1:1/none"


@pytest.mark.parametrize("job", JOBS)
async def test_no_verdict_is_wrong(world: World, job: str) -> None:
    await prepare_tracking(
        world,
        jobs=job,
        messages_sink="topic",
        messages_window_ms=2_000,
        tracking_policy="drop",
    )
    await verify(world, job)


async def test_of_marked_events_all_are_there_and_no_mark_is_wrong(world: World) -> None:
    await prepare_tracking(world, partitioned=False)
    await verify(world, "tracking")


async def verify(world: World, job: str) -> None:
    """Send traffic through a worker, and find every verdict right."""
    await world.start_worker().ready()
    settings = world.settings
    feed = make_feed(job, 7, settings)
    load = Load(seconds=5, rate=SENT / 5, seed=7)
    sent = await send_and_verify(settings, feed, load, asyncio.Event(), settle_s=60)
    assert SENT <= sent < SENT + 20
    keeps_all = job == "tracking" and settings.tracking_policy == "mark"
    assert feed.expected == sent if keeps_all else 0 < feed.expected < sent
    assert feed.truth() == Truth(0, 0, 0, 0)


@on_embedded
@pytest.mark.parametrize("job", ["market", "tracking"])
async def test_what_does_not_come_out_is_said(world: World, job: str) -> None:
    """Nobody judges: all that is new is missing."""
    await prepare_tracking(world, jobs=job, tracking_policy="drop")
    feed = make_feed(job, 1, world.settings)
    load = Load(seconds=1, rate=200, seed=1)
    sent = await send_and_verify(world.settings, feed, load, asyncio.Event(), settle_s=0.5)
    found = feed.truth()
    assert (found.false, found.missed, found.repeated) == (feed.expected, 0, 0)
    assert found.wrong
    assert verdict_lines(feed, sent)[-1] == f"false: {feed.expected:,}, missed: 0"


@on_embedded
async def test_simulate_verifies(world: World) -> None:
    await prepare_tracking(world, jobs=",".join(JOBS), messages_sink="topic")
    await world.start_worker().ready()
    for job in JOBS:
        all_is_right(await asyncio.to_thread(simulate, world, "--job", job))


@on_embedded
async def test_simulate_verifies_what_goes_through_the_door(world: World) -> None:
    await prepare_tracking(world, tracking_place="door", **PATIENT)
    await world.start_worker().ready()
    async with open_door(world.settings) as door:
        at_the_door = ("--job", "tracking", "--url", door.url)
        all_is_right(await asyncio.to_thread(simulate, world, *at_the_door))
        verdicts = Counter(verdict for _, _, verdict in door.service.figures.events.elements())
    assert verdicts.keys() == {Verdict.FIRST, Verdict.DUPLICATE, Verdict.EXEMPT}


def simulate(world: World, *arguments: str) -> subprocess.CompletedProcess[str]:
    size = ("--verify", "--seconds", "2", "--rate", "1000")
    return run_program("simulate", world.environment, world.directory, *arguments, *size)


def all_is_right(done: subprocess.CompletedProcess[str]) -> None:
    assert done.stdout.splitlines()[-1] == "false: 0, missed: 0", done.stdout + done.stderr
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--url", "http://127.0.0.1:1"), "--url: want --job tracking"),
        (("--job", "market", "--url", "http://127.0.0.1:1"), "--url: want --job tracking"),
        (("--verify",), "--verify: want --job"),
        (("--job", "tracking", "--url", "http://127.0.0.1:1"), "no collector answers at http://1"),
        (("--job", "tracking", "--verify", "--database-url", NOWHERE), "cannot read table event"),
    ],
)
def test_what_simulate_cannot_do_is_one_line(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    done = run_program("simulate", {}, tmp_path, "--seconds", "1", *arguments)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert said in line


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("market",),
        ("tracking",),
        ("tracking", "--tracking-place", "door", "--tracking-policy", "drop"),
        ("tracking", "--tracking-place", "door", "--collect-store", "postgres"),
    ],
    ids=" ".join,
)
def test_demo(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    size = ("--seconds", "3", "--rate", "1000")
    all_is_right(run_program("demo", {}, tmp_path, *size, "--job", *arguments, seconds=180))
