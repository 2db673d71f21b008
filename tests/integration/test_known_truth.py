"""Traffic of which it is known what is a duplicate of what, through real workers: no verdict is
wrong. As users see it, too: `simulate --verify`, `demo --job`."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from heartbeat_stream.local.demo.judged import Load, send_and_verify, verdict_lines
from heartbeat_stream.local.judged_traffic import FEEDS, Truth
from tests.support.brokers import on_embedded
from tests.support.streams import prepare_jobs
from tests.support.world import World

JOBS = ("market", "messages")


def run(*arguments: str, directory: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "heartbeat_stream", *arguments],
        cwd=directory,
        env={"PATH": "/usr/bin:/bin", "HOME": str(directory), "LC_ALL": "C.UTF-8", **environment},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


@pytest.mark.parametrize("job", JOBS)
async def test_no_verdict_is_wrong(world: World, job: str) -> None:
    await prepare_jobs(world, job, messages_sink="topic", messages_window_ms=2_000)
    await world.start_worker().ready()
    settings = world.settings
    feed = FEEDS[job](7, settings)
    load = Load(seconds=5, rate=2_000, seed=7)
    sent = await send_and_verify(settings, feed, load, asyncio.Event(), settle_s=60)
    assert sent == 10_000
    assert 0 < feed.expected < sent
    assert feed.truth() == Truth(0, 0, 0)


@on_embedded
async def test_what_does_not_come_out_is_said(world: World) -> None:
    """Nobody judges: all that is new is missing."""
    await prepare_jobs(world, "market")
    feed = FEEDS["market"](1, world.settings)
    load = Load(seconds=1, rate=200, seed=1)
    sent = await send_and_verify(world.settings, feed, load, asyncio.Event(), settle_s=0.5)
    assert feed.truth() == Truth(feed.expected, 0, 0)
    assert verdict_lines(feed, sent)[-1] == f"false: {feed.expected:,}, missed: 0"


@on_embedded
async def test_simulate_verifies(world: World) -> None:
    await prepare_jobs(world, "market,messages", messages_sink="topic")
    await world.start_worker().ready()
    for job in JOBS:
        done = await asyncio.to_thread(
            run,
            *("simulate", "--job", job, "--verify", "--seconds", "2", "--rate", "1000"),
            directory=world.directory,
            **world.environment,
        )
        assert done.stdout.splitlines()[-1] == "false: 0, missed: 0", done.stdout + done.stderr
        assert done.returncode == 0


@pytest.mark.slow
def test_demo(tmp_path: Path) -> None:
    done = run("demo", "--job", "market", "--seconds", "3", directory=tmp_path)
    assert done.stdout.splitlines()[-1] == "false: 0, missed: 0", done.stdout + done.stderr
    assert done.returncode == 0
