"""A broker that has not heard yet of topics that another one has created.

In a cluster of several nodes that is so for a moment after every creation. Faust's assignor passes
over a topic that it cannot see, and aiokafka looks again only when its metadata is old: a worker
was up, and idle, for a minute.
"""

from __future__ import annotations

import pytest

from heartbeat_stream.core.heartbeat import Heartbeat
from heartbeat_stream.streaming.topics import all_topics
from tests.support.kafka_proxy import METADATA, KafkaProxy
from tests.support.oracle import Oracle, now_ms
from tests.support.world import World

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

#: Much less than what aiokafka's metadata may be old, and no less than a join takes.
SOON_S = 20.0


REPARTITION, CHANGELOGS = (
    "heartbeats-repartition",
    ("latest-changelog", "last_written_at-changelog"),
)


@pytest.mark.parametrize(
    "hidden",
    [
        pytest.param([REPARTITION], id="repartition"),
        pytest.param([REPARTITION, *CHANGELOGS], id="all that it has created"),
    ],
)
async def test_topics_that_are_not_known_yet_when_a_worker_joins(
    proxied_world: World, proxy: KafkaProxy, hidden: list[str]
) -> None:
    await proxied_world.prepare()
    topics = [f"{proxied_world.settings.app_id}-{name}" for name in hidden]
    assert set(topics) < {spec.name for spec in all_topics(proxied_world.settings, {})}
    proxy.hide(*topics, client="faust")
    worker = proxied_world.start_worker()

    async def has_joined() -> bool:
        return "Ignoring missing topic" in worker.log_text()

    await worker.until(has_joined, 60, what="it has joined without them")
    assert proxy.spoilt[METADATA] > 0
    proxy.behave()
    await worker.ready(SOON_S)
    oracle = Oracle()
    await proxied_world.send([Heartbeat(7, f"{n}", now_ms()) for n in range(100)], oracle=oracle)
    await oracle.matches(proxied_world.table, SOON_S)
    await proxied_world.no_lag()
    await worker.stopped()
    assert "Traceback" not in worker.log_text()
