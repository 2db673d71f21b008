"""Topics that do not take what a worker writes, or are deleted under it.

A worker may go on by itself, or end with a line that says what to do. It is never up, and idle.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable

import aiohttp
import pytest

from heartbeat_stream.core.heartbeat import Heartbeat
from heartbeat_stream.local.fleet import Fleet
from heartbeat_stream.streaming.topics import all_topics
from tests.support import kafka_admin
from tests.support.brokers import on_kafka
from tests.support.oracle import Oracle, now_ms
from tests.support.verdict import Crash, all_is_right
from tests.support.wait import wait_until_async
from tests.support.worker import Worker
from tests.support.world import World, encode, load

pytestmark = [on_kafka, pytest.mark.slow]

HOTELS, ROOMS_PER_HOTEL = 20, 100
ROOMS = HOTELS * ROOMS_PER_HOTEL
RATE = 1_500
#: A batch without any record has 61 bytes.
NOTHING_FITS = "64"
#: What it cannot write keeps it for no longer.
DRAIN_TIMEOUT_MS = 2_000
#: Two looks after something is amiss, an end in order, and a busy machine.
ENDS_WITHIN_S = 60.0

Topic = Callable[[World], str]


def source(world: World) -> str:
    return world.topic


def repartition(world: World) -> str:
    return world.repartition_topic


def latest_changelog(world: World) -> str:
    return world.changelog("latest")


def written_changelog(world: World) -> str:
    return world.changelog("last_written_at")


def dead_letters(world: World) -> str:
    return world.dead_letter_topic


def named(topic: Topic) -> str:
    return topic.__name__


async def configure(world: World, topic: str, **config: str) -> None:
    """Give a topic its own configuration, and this."""
    (spec,) = [spec for spec in all_topics(world.settings, {}) if spec.name == topic]
    more = {name.replace("_", "."): value for name, value in config.items()}
    await kafka_admin.alter_topic_config(
        world.bootstrap_servers, topic, {**dict(spec.config), **more}
    )


async def init(world: World) -> None:
    """What an operator does when a topic is missing."""
    command = [sys.executable, "-m", "heartbeat_stream", "init"]
    environment = {"PATH": os.environ["PATH"], **world.environment}
    if "PYTHONPATH" in os.environ:
        environment["PYTHONPATH"] = os.environ["PYTHONPATH"]
    process = await asyncio.create_subprocess_exec(
        *command, cwd=world.directory, env=environment, stdout=asyncio.subprocess.DEVNULL
    )
    assert await process.wait() == 0


async def has_ended_saying(worker: Worker, *words: str) -> None:
    assert await worker.ended(ENDS_WITHIN_S) == 1, worker.log_end()
    log = worker.log_text()
    assert "Traceback" not in log, worker.log_end()
    assert any(all(word in line for word in words) for line in log.splitlines()), worker.log_end()


async def goes_on(worker: Worker) -> None:
    await worker.ready()
    await worker.until_metric("heartbeat_rows_written_total", ROOMS, 60)


# -- refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "topic", [repartition, latest_changelog, written_changelog, dead_letters], ids=named
)
async def test_records_that_are_too_large_for_their_topic(world: World, topic: Topic) -> None:
    await world.prepare()
    worker = world.start_worker()
    async with load(world, Fleet(HOTELS, ROOMS_PER_HOTEL), RATE) as running:
        await goes_on(worker)
        begins = Crash.now()
        await configure(world, topic(world), max_message_bytes=NOTHING_FITS)
        await has_ended_saying(worker, topic(world), "max.message.bytes")
        await configure(world, topic(world))
        crashes = [begins.until_now()]
        await goes_on(world.start_worker())
    await all_is_right(world, running.oracle, crashes=crashes)


@pytest.mark.parametrize("end", ["accepted", "killed"])
async def test_one_record_is_still_in_work_while_later_ones_are_done(
    world: World, end: str
) -> None:
    """Its offset is not committed, whatever has become of those behind it."""
    await world.prepare(partitions=1)
    oracle = Oracle()
    worker = await world.start_worker().ready()
    await world.send([Heartbeat(7, "before", now_ms())], oracle=oracle)
    await oracle.matches(world.table)
    await world.no_lag()
    # A topic that is compacted takes no record without a key.
    await configure(world, world.dead_letter_topic, cleanup_policy="compact")
    async with world.producer() as producer:
        broken = await producer.send_and_wait(world.topic, b"no heartbeat", partition=0)
        behind = [Heartbeat(7, f"{number}", now_ms()) for number in range(100)]
        for one in behind:
            await producer.send_and_wait(world.topic, encode(one), partition=0)
    oracle.accept(behind)
    await oracle.matches(world.table)
    await wait_until_async(
        lambda: "cannot write to topic" in worker.log_text(), 60, what="the dead letter is refused"
    )
    assert await world.committed() == {0: broken.offset}
    assert (await worker.get("/health/live"))[0] == 200
    if end == "killed":
        await worker.kill()
    await configure(world, world.dead_letter_topic)
    if end == "killed":
        await world.start_worker().ready()
    await all_is_right(world, oracle, crashes=[Crash.now()] if end == "killed" else (), outage=True)


# -- deleted -------------------------------------------------------------------------------------


@pytest.mark.parametrize("topic", [source, repartition], ids=named)
async def test_a_topic_with_input_is_deleted(world: World, topic: Topic) -> None:
    """What stood in it is gone with it; so everything has been worked on before."""
    await world.prepare(drain_timeout_ms=DRAIN_TIMEOUT_MS)
    fleet = Fleet(HOTELS, ROOMS_PER_HOTEL)
    worker = world.start_worker()
    async with load(world, fleet, RATE) as running:
        await goes_on(worker)
    await running.oracle.matches(world.table)
    await world.no_lag()
    await kafka_admin.delete_topics(world.bootstrap_servers, topic(world))
    await has_ended_saying(worker, topic(world), "does not exist any more", "init")
    await init(world)
    worker = world.start_worker()
    async with load(world, fleet, RATE) as running:
        await goes_on(worker)
    await all_is_right(world, running.oracle, crashes=[Crash.now()], dead_letters=False)


@pytest.mark.parametrize("topic", [latest_changelog, written_changelog, dead_letters], ids=named)
async def test_a_topic_that_is_written_is_deleted_under_load(world: World, topic: Topic) -> None:
    await world.prepare(drain_timeout_ms=DRAIN_TIMEOUT_MS)
    worker = world.start_worker()
    async with load(world, Fleet(HOTELS, ROOMS_PER_HOTEL), RATE) as running:
        await goes_on(worker)
        begins = Crash.now()
        await kafka_admin.delete_topics(world.bootstrap_servers, topic(world))
        await has_ended_saying(worker, topic(world), "does not exist any more", "init")
        await init(world)
        await goes_on(world.start_worker())
        crashes = [begins.until_now()]
    await all_is_right(world, running.oracle, crashes=crashes, dead_letters=False)


@pytest.mark.parametrize("topic", [latest_changelog, dead_letters], ids=named)
async def test_a_topic_is_made_again_at_once_under_load(world: World, topic: Topic) -> None:
    """Whoever notices ends and is started again; whoever does not goes on."""
    await world.prepare(drain_timeout_ms=DRAIN_TIMEOUT_MS)
    worker = world.start_worker()
    async with load(world, Fleet(HOTELS, ROOMS_PER_HOTEL), RATE) as running:
        await goes_on(worker)
        begins = Crash.now()
        await kafka_admin.delete_topics(world.bootstrap_servers, topic(world))
        await init(world)
        written = (await worker.metrics())["heartbeat_rows_written_total"]

        async def done() -> bool:
            with contextlib.suppress(aiohttp.ClientError):  # it ends just now
                return not worker.running or (await worker.is_ready() and await further())
            return False

        async def further() -> bool:
            figures = await worker.metrics()
            return figures["heartbeat_rows_written_total"] >= written + 2 * ROOMS

        await wait_until_async(done, 90, what="it goes on, or has ended")
        if not worker.running:
            await has_ended_saying(worker, "does not exist any more")
            await goes_on(world.start_worker())
        crashes = [begins.until_now()]
    await all_is_right(world, running.oracle, crashes=crashes, dead_letters=False)
