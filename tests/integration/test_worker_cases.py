"""The acceptance cases of a heartbeat, through the real broker into the real database."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.structs import ConsumerRecord

from heartbeat_stream.core.heartbeat import Heartbeat, room_key
from heartbeat_stream.core.reasons import Reason
from tests.support.oracle import now_ms
from tests.support.topic_reader import open_reader
from tests.support.wait import wait_until_async
from tests.support.world import World, encode

CASES = json.loads((Path(__file__).parents[1] / "cases" / "heartbeats.json").read_text("utf-8"))

#: Where the neighbours live: a hotel of no case.
NEIGHBOURS = 30_000


def value_of(case: dict[str, Any], now: int) -> bytes | None:
    """The bytes of a case, its placeholders filled in for this time; None for a tombstone."""
    if "value_hex" in case:
        return bytes.fromhex(case["value_hex"])
    if case["value"] is None:
        return None
    text = case["value"].replace("{T.0}", f"{now}.0").replace("{S}", str(now // 1000))
    return re.sub(r"\{T([+-]\d+)?\}", lambda found: str(now + int(found[1] or 0)), text).encode()


@pytest.mark.parametrize("keyed", [False, True], ids=["unkeyed", "keyed"])
async def test_every_case_between_two_good_neighbours(world: World, keyed: bool) -> None:
    # No window and no cooldown: whatever arrives is written at once, so that each case is seen
    # in the table by itself. One partition, so that a case and its neighbours are one batch.
    await world.prepare(
        source_keyed=keyed, partitions=1, buffer_window_ms=0, cooldown_ms=0, checkpoint_ms=100
    )
    worker = await world.start_worker().ready()
    rejected: list[tuple[int, bytes | None, bytes, str]] = []
    skipped = 0
    async with world.producer() as producer:
        for number, case in enumerate(CASES):
            now = now_ms()
            value = value_of(case, now)
            key = key_of(case)
            neighbours = [Heartbeat(NEIGHBOURS, f"{number} {side}", now, side) for side in "ab"]
            offset = await send_in_one_batch(
                producer,
                world.topic,
                [
                    (neighbour_key(neighbours[0]), encode(neighbours[0])),
                    (key, value),
                    (neighbour_key(neighbours[1]), encode(neighbours[1])),
                ],
            )
            expected = {(one.hotel_id, one.room_id): one for one in neighbours}
            if case["outcome"] == "row":
                hotel, room, device, ts_offset, status = case["row"]
                row = Heartbeat(hotel, room, now + ts_offset, device, status)
                expected[hotel, room] = row
            elif case["outcome"] == "dead-letter":
                assert value is not None
                rejected.append((offset + 1, key, value, case["name"]))
            else:
                assert case["outcome"] == "skipped"
                skipped += 1
            await arrive(world, expected, case["name"])
    async with open_reader(world.bootstrap_servers, world.dead_letter_topic) as reader:
        dead_letters = await reader.until(len(rejected))
        await reader.ends()
    assert len(dead_letters) == len(rejected)
    for record, (offset, key, value, name) in zip(dead_letters, rejected, strict=True):
        check_dead_letter(record, key, value, world.topic, offset, name)
    figures = await worker.metrics()
    assert figures["heartbeat_tombstones_total"] == skipped > 0
    assert figures["heartbeat_dead_letters_total"] == len(rejected)
    assert figures["heartbeat_records_total"] == 3 * len(CASES)
    await world.no_lag()


def key_of(case: dict[str, Any]) -> bytes | None:
    """The key that a keyed producer would give it."""
    if case["outcome"] != "row":
        return b"7:101"
    hotel, room = case["row"][:2]
    return room_key(hotel, room)


def neighbour_key(heartbeat: Heartbeat) -> bytes:
    return room_key(heartbeat.hotel_id, heartbeat.room_id)


async def send_in_one_batch(
    producer: AIOKafkaProducer, topic: str, records: list[tuple[bytes | None, bytes | None]]
) -> int:
    """Write records that a consumer gets together; the offset of the first."""
    batch = producer.create_batch()
    for key, value in records:
        assert batch.append(key=key, value=value, timestamp=None) is not None
    future = await producer.send_batch(batch, topic, partition=0)
    offset: int = (await future).offset
    return offset


async def arrive(world: World, expected: dict[tuple[int, str], Heartbeat], name: str) -> None:
    async def there() -> bool:
        rows = await world.table.rows()
        return all(rows.get(room) == row for room, row in expected.items())

    await wait_until_async(there, 20, what=f"rows of the case {name!r} and of its neighbours")


def check_dead_letter(
    record: ConsumerRecord, key: bytes | None, value: bytes, topic: str, offset: int, name: str
) -> None:
    headers = dict(record.headers)
    assert (record.key, record.value) == (key, value), name
    assert headers["reason"].decode() in list(Reason), name
    assert headers["detail"], name
    assert headers["source-topic"] == topic.encode(), name
    assert headers["source-partition"] == b"0", name
    assert headers["source-offset"] == b"%d" % offset, name
    assert len(record.headers) == 5, name
