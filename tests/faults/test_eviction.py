"""Memory forgets what is on disk, and nothing else."""

from __future__ import annotations

import pytest

from heartbeat_stream.core.heartbeat import Heartbeat
from tests.support.kafka_proxy import PRODUCE, KafkaProxy
from tests.support.oracle import Oracle, now_ms
from tests.support.verdict import all_is_right
from tests.support.world import World

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

ROOMS = 500
COOLDOWN_MS = 20_000
CHECKPOINT_S = 3.0
#: In two seconds memory is looked through four times.
LOOKED_THROUGH_S = 2.0


def heartbeats(device: str) -> list[Heartbeat]:
    return [Heartbeat(7, f"{number}", now_ms(), device) for number in range(ROOMS)]


async def test_rooms_of_a_checkpoint_that_is_under_way(
    proxied_world: World, proxy: KafkaProxy
) -> None:
    """Their last write stands in memory alone, and is remembered."""
    world = proxied_world
    await world.prepare(
        source_keyed=True,
        cache_rooms=0,
        buffer_window_ms=0,
        cooldown_ms=COOLDOWN_MS,
        checkpoint_ms=int(CHECKPOINT_S * 1000),
    )
    oracle = Oracle()
    worker = await world.start_worker().ready()

    async def a_checkpoint_has_just_ended() -> bool:
        return (await worker.metrics())["heartbeat_checkpoint_age_seconds"] < 0.5

    await worker.until(a_checkpoint_has_just_ended, what="a checkpoint ends")
    proxy.hold(PRODUCE)
    await world.send(heartbeats("first"), oracle=oracle)
    await worker.until_metric("heartbeat_rows_written_total", ROOMS)
    # The next one has begun, with all of this, and hangs.
    age_s = CHECKPOINT_S + LOOKED_THROUGH_S
    await worker.until_metric("heartbeat_checkpoint_age_seconds", age_s)
    await world.send(heartbeats("second"), oracle=oracle)
    await worker.until_metric("heartbeat_records_total", 2 * ROOMS)
    proxy.behave()
    await all_is_right(world, oracle, outage=True)
    assert len(await world.table.attempts()) == 2 * ROOMS
