"""The job tracking on Apache Kafka, with several workers: kills, rebalances, days that all of them
create at once."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from heartbeat_stream.core.tracking_record import Envelope
from heartbeat_stream.local.judged_traffic import Truth, send_feed
from heartbeat_stream.local.tracking_feed import TrackingFeed
from tests.support.command import run_command
from tests.support.kills import SENT_MAX, SENT_PER_S, kills_and_rebalances
from tests.support.oracle import now_ms
from tests.support.selftest import agrees_at_the_door, as_wanted, numbers
from tests.support.streams import no_lag_of_jobs
from tests.support.tracking import event, partitions, prepare_tracking, report, stored
from tests.support.world import World

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

DAY_MS = 86_400_000


@pytest.mark.parametrize("policy", ["mark", "drop"])
async def test_tracking_events_with_kills_and_rebalances(world: World, policy: str) -> None:
    """No event is lost, none is stored twice, and none is falsely a duplicate."""
    await prepare_tracking(world, tracking_policy=policy, checkpoint_ms=300)
    settings = world.settings
    feed = TrackingFeed(3, settings)

    async def sending(stop: asyncio.Event) -> None:
        await send_feed(
            settings,
            feed,
            seconds=SENT_MAX / SENT_PER_S,
            rate=SENT_PER_S,
            on_progress=lambda sent, elapsed: None,
            stop=stop,
        )

    async with feed.watching(settings) as watcher:
        third = await kills_and_rebalances(world, sending)
        await watcher.until_all(feed.expected, 30, lambda: None)
    assert feed.truth() == Truth(0, 0, 0, 0)
    await third.stopped()


async def test_the_self_test_behind_kafka(world: World) -> None:
    await prepare_tracking(world, tracking_policy="mark")
    world.start_worker()
    done = await run_command(world, "selftest", "tracking")
    assert numbers(done) == as_wanted("mark")


async def test_the_self_test_at_the_door(world: World) -> None:
    await agrees_at_the_door(world, "drop", collect_store="postgres")


async def test_workers_create_the_partitions_of_many_days_at_once(world: World) -> None:
    """A spool that has waited for weeks comes to three workers: each needs every day at once."""
    await prepare_tracking(world, partitioned=False)
    workers = [world.start_worker() for _ in range(3)]
    for worker in workers:
        await worker.ready()
    now, days = now_ms(), range(1, 31)
    for day in days:
        values = [event(100 * day + n) for n in range(50)]
        await report(world, values, Envelope(received_at_ms=now - day * DAY_MS), at_ms=now)
    await no_lag_of_jobs(world)
    rows = await stored(world)
    assert len(rows) == 50 * len(days)
    wanted = {datetime.fromtimestamp((now - day * DAY_MS) / 1000, UTC).date() for day in days}
    assert {row["received_at"].date() for row in rows} == wanted
    assert wanted <= await partitions(world)
    assert await world.dead_letters() == []
    judged = [(await worker.metrics())["heartbeat_tracking_events_total"] for worker in workers]
    assert min(judged) > 0, "each had some"
    for worker in workers:
        assert "takes no messages" not in worker.log_text(), "none was in another's way"
        await worker.stopped()
