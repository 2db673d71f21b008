"""A group's coordinator that answers with errors, or does not answer, when it should not.

What Apache Kafka seldom does by itself, a proxy before it does at the moment that hurts. Whatever
it is, a worker goes on as soon as the coordinator does, or ends for its supervisor to start it
again; it is never up, and idle for ever.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.support.busy import busy
from tests.support.kafka_proxy import COMMIT, FETCH_OFFSETS, HEARTBEAT, JOIN, SYNC, KafkaProxy
from tests.support.verdict import Crash, all_is_right
from tests.support.wait import wait_until_async
from tests.support.world import World

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

UNKNOWN_SERVER_ERROR = -1
UNKNOWN_TOPIC_OR_PARTITION = 3
OFFSET_METADATA_TOO_LARGE = 12  # not worth trying again, for aiokafka
COORDINATOR_NOT_AVAILABLE = 15
STORAGE_ERROR = 56

#: Longer than a request may take with a session of 3 s.
LONG_S = 20.0


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        pytest.param(HEARTBEAT, UNKNOWN_SERVER_ERROR, id="heartbeat"),
        pytest.param(JOIN, UNKNOWN_SERVER_ERROR, id="join"),
        pytest.param(SYNC, UNKNOWN_SERVER_ERROR, id="sync"),
        pytest.param(FETCH_OFFSETS, COORDINATOR_NOT_AVAILABLE, id="fetch-offsets"),
        pytest.param(COMMIT, UNKNOWN_SERVER_ERROR, id="commit"),
        pytest.param(COMMIT, UNKNOWN_TOPIC_OR_PARTITION, id="commit-unknown-topic"),
        pytest.param(COMMIT, OFFSET_METADATA_TOO_LARGE, id="commit-refused"),
    ],
)
async def test_answers_that_are_errors(
    proxied_world: World, proxy: KafkaProxy, kind: int, code: int
) -> None:
    crashes: list[Crash] = []
    async with busy(proxied_world) as scene:
        begins = Crash.now()
        proxy.fail(kind, code=code)
        second = proxied_world.start_worker()  # so that there is a rebalance
        await wait_until_async(lambda: proxy.spoilt.get(kind, 0) >= 3, 60, what="three errors")
        proxy.behave()
        await second.ready()
        await scene.goes_on()
        crashes.append(begins.until_now())
    await all_is_right(proxied_world, scene.load.oracle, crashes=crashes, outage=True)


@pytest.mark.parametrize(
    "kind", [pytest.param(FETCH_OFFSETS, id="fetch-offsets"), pytest.param(COMMIT, id="commit")]
)
async def test_answers_that_do_not_come(proxied_world: World, proxy: KafkaProxy, kind: int) -> None:
    crashes: list[Crash] = []
    async with busy(proxied_world) as scene:
        begins = Crash.now()
        proxy.hold(kind)
        before = proxy.seen[kind]
        second = proxied_world.start_worker()
        await wait_until_async(lambda: proxy.seen[kind] > before, 60, what="somebody asks")
        await asyncio.sleep(LONG_S)
        proxy.behave()
        await second.ready()
        await scene.goes_on()
        crashes.append(begins.until_now())
    await all_is_right(proxied_world, scene.load.oracle, crashes=crashes, outage=True)
