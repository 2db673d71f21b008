"""The collector with a real Redis."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import aiohttp
import pytest

from heartbeat_stream.collector.seen.redis import RedisStore
from heartbeat_stream.collector.seen.store import StoreFailed
from heartbeat_stream.core.tracking_record import Verdict
from heartbeat_stream.local.process import LOOPBACK, suspend
from heartbeat_stream.local.redis import RedisServer
from heartbeat_stream.local.sdk_reports import send_report
from tests.support.brokers import on_embedded
from tests.support.door import (
    PATIENT,
    open_door,
    prepare_door,
    send_all,
    some_traffic,
    verdicts,
    wrong_verdicts,
)
from tests.support.program import run_program
from tests.support.sdk import event
from tests.support.seen_stores import keeps_to_the_protocol, one_claim_wins, seen_expires
from tests.support.selftest import agrees_at_the_door
from tests.support.topic_reader import open_reader
from tests.support.world import World

pytestmark = [
    pytest.mark.services,
    pytest.mark.skipif(
        shutil.which("redis-server") is None and os.environ.get("CI") != "true",
        reason="redis-server is not installed: `make test-services` installs it",
    ),
]

PASSWORD = "hush-of-redis"
HOUR_MS = 3_600_000


def store_in(
    redis: RedisServer, claim_ms: int = HOUR_MS, window_ms: int = HOUR_MS, prefix: str = ""
) -> RedisStore:
    return RedisStore(
        redis.url,
        prefix=prefix or f"t{time.monotonic_ns()}:",
        claim_ms=claim_ms,
        window_ms=window_ms,
        wait_ms=10_000,
    )


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


async def test_the_protocol(redis: RedisServer) -> None:
    store = store_in(redis)
    await keeps_to_the_protocol(store)
    await store.stop()


async def test_several_collectors_claim_at_once(redis: RedisServer) -> None:
    stores = [store_in(redis, prefix="shared:") for _ in range(2)]
    await one_claim_wins(list(stores))
    for store in stores:
        await store.stop()


async def test_claims_and_what_was_seen_expire(redis: RedisServer) -> None:
    await seen_expires(partial(store_in, redis))


async def test_a_redis_that_is_away_is_said_without_its_password() -> None:
    store = RedisStore(
        f"redis://:{PASSWORD}@{LOOPBACK}:1/0", prefix="x", claim_ms=9, window_ms=9, wait_ms=500
    )
    with pytest.raises(StoreFailed) as caught:
        await store.claim(dict.fromkeys([b"a"], b"one"))
    assert PASSWORD not in str(caught.value)


@on_embedded
@pytest.mark.parametrize("policy", ["mark", "drop"])
async def test_known_truth_at_the_door(redis: RedisServer, world: World, policy: str) -> None:
    """Two collectors, tabs that flush the same cache at once: 0 missed, 0 made up."""
    settings = await prepare_door(
        world,
        tracking_place="door",
        tracking_policy=policy,
        collect_store="redis",
        collect_redis_url=redis.url,
        **PATIENT,
    )
    traffic, flushes = some_traffic(seed=12)
    async with open_door(settings) as first, open_door(settings) as second:
        await send_all([first.url, second.url], flushes)
    kept = traffic.to_be_kept(dropped=policy == "drop")
    async with open_reader(world.bootstrap_servers, settings.tracking_topic) as reader:
        records = await reader.until(kept)
        assert not await reader.fetch()
    assert not wrong_verdicts(verdicts(records), traffic, dropped=policy == "drop")


@on_embedded
@pytest.mark.parametrize("policy", ["mark", "drop"])
async def test_the_self_test_at_the_door(redis: RedisServer, world: World, policy: str) -> None:
    await agrees_at_the_door(world, policy, collect_store="redis", collect_redis_url=redis.url)


@on_embedded
async def test_a_redis_that_hangs_holds_nobody(world: World) -> None:
    with RedisServer() as redis:
        settings = await prepare_door(
            world,
            tracking_place="door",
            collect_store="redis",
            collect_redis_url=redis.url,
            collect_store_wait_ms=200,
        )
        async with open_door(settings) as door, aiohttp.ClientSession() as session:
            suspend(redis.pid)
            try:
                started = time.monotonic()
                for number in range(20):
                    assert await send_report(session, door.url, "form", [event(number)]) == 200
                assert time.monotonic() - started < 10
            finally:
                os.kill(redis.pid, signal.SIGCONT)
    async with open_reader(world.bootstrap_servers, settings.tracking_topic) as reader:
        found = verdicts(await reader.until(20))
    assert all(one == {Verdict.UNJUDGED: 1} for one in found.values())


@pytest.mark.slow
def test_demo(tmp_path: Path) -> None:
    """With a Redis of its own, which is gone with it."""
    arguments = ("--tracking-place", "door", "--collect-store", "redis")
    size = ("--seconds", "3", "--rate", "1000")
    done = run_program("demo", {}, tmp_path, "--job", "tracking", *size, *arguments, seconds=180)
    assert done.stdout.splitlines()[-1] == "false: 0, missed: 0", done.stdout + done.stderr
    assert done.returncode == 0


def test_a_demo_without_the_program_says_so(tmp_path: Path) -> None:
    arguments = ("--tracking-place", "door", "--collect-store", "redis")
    environment = {"PATH": "/nowhere"}
    done = run_program("demo", environment, tmp_path, "--job", "tracking", *arguments, seconds=180)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "redis-server is not installed" in line
