"""Records of more than a megabyte, beside ordinary ones."""

import json

import pytest

from heartbeat_stream.core.heartbeat import Heartbeat
from heartbeat_stream.core.reasons import Reason
from tests.support.oracle import Oracle, now_ms
from tests.support.topic_reader import open_reader
from tests.support.world import World

LARGE = 1_200_000
#: What the source takes; the dead-letter topic is left at Kafka's default of a megabyte.
SOURCE_CONFIG = {"max.message.bytes": "4000000"}
DEFAULT_MAX_BYTES = 1_048_588


@pytest.mark.parametrize("keyed", [False, True], ids=["unkeyed", "keyed"])
async def test_large_records(world: World, keyed: bool) -> None:
    await world.prepare(source_keyed=keyed, partitions=1, source_config=SOURCE_CONFIG)
    worker = await world.start_worker().ready()
    now, oracle = now_ms(), Oracle()
    fields = {"hotel_id": 7, "room_id": "101", "ts_ms": now, "status": 1}
    right = json.dumps({**fields, "extra": "x" * LARGE}).encode()
    wrong = json.dumps({**fields, "room_id": "102", "device_id": "d" * LARGE}).encode()
    neighbour = json.dumps({**fields, "room_id": "103"}).encode()
    async with world.producer() as producer:
        for key, value in ((b"7:101", right), (b"7:102", wrong), (b"7:103", neighbour)):
            await producer.send_and_wait(world.topic, value, key=key, partition=0)
    # A large one that is right in itself is a row: what is not known of it is not kept.
    oracle.accept([Heartbeat(7, room, now, None, 1) for room in ("101", "103")])
    await oracle.matches(world.table)
    async with open_reader(world.bootstrap_servers, world.dead_letter_topic) as reader:
        [dead_letter] = await reader.until(1)
    headers = dict(dead_letter.headers)
    assert headers["reason"] == Reason.BAD_DEVICE_ID.encode()
    assert headers["source-offset"] == b"1"
    assert dead_letter.key == b"7:102"
    if world.cluster.kind == "embedded":
        # That broker minds no limit, so there is nothing to be cut.
        assert dead_letter.value == wrong
        assert "original-length" not in headers
    else:
        assert headers["original-length"] == b"%d" % len(wrong)
        assert wrong.startswith(dead_letter.value)
        assert DEFAULT_MAX_BYTES // 2 < len(dead_letter.value) < DEFAULT_MAX_BYTES
    await world.no_lag()
    assert (await worker.metrics())["heartbeat_dead_letters_total"] == 1
