"""Market messages on a real broker: unique ones in order, duplicates told apart, continuity."""

from __future__ import annotations

import json
from typing import Any

import pytest

from heartbeat_stream.sinks.message_table import message_ddl
from heartbeat_stream.sinks.table import Table
from tests.support.brokers import on_embedded
from tests.support.oracle import now_ms
from tests.support.streams import (
    Sent,
    headers_of,
    no_lag_of_jobs,
    prepare_jobs,
    send,
    source,
    written,
)
from tests.support.world import World


def depth(seq: int, ts: int, **more: Any) -> bytes:
    message = {"exchange": "X", "symbol": "BTC", "channel": "depth", "ts": ts, "seq": seq}
    return json.dumps({**message, "bids": [[1.5, seq]], **more}).encode()


@pytest.mark.parametrize("keyed", [False, True], ids=["unkeyed", "keyed"])
async def test_each_message_once_and_what_became_of_the_others(world: World, keyed: bool) -> None:
    name = world.settings.app_id
    await prepare_jobs(world, "market", market_duplicates_topic=f"{name}.twins", market_keyed=keyed)
    start, us = now_ms() - 100_000, (now_ms() - 100_000) * 1000
    values = [
        depth(1, us + 1),
        depth(2, us + 2),
        depth(2, us + 2),  # by its id
        depth(None, us + 2, received_at=5),  # type: ignore[arg-type]  # by its time
        b"no market message",
        depth(5, us + 5),  # 3 and 4 are missing
    ]
    topic = source(world, "market")
    sent = [Sent(value, start + n, b"its own", 1) for n, value in enumerate(values)]
    await send(world, topic, sent)
    await world.start_worker().ready()
    await no_lag_of_jobs(world)

    unique = await written(world, world.settings.market_unique_topic)
    assert [one.value for one in unique] == [values[0], values[1], values[5]]
    assert {one.key for one in unique} == {b"its own"}
    assert [one.timestamp for one in unique] == [start, start + 1, start + 5]
    assert [headers_of(one)["source-offset"] for one in unique] == ["0", "1", "5"]
    assert len({one.partition for one in unique}) == 1

    twins = await written(world, f"{name}.twins")
    assert [one.value for one in twins] == [values[2], values[3]]
    told = [headers_of(one) for one in twins]
    assert [one["duplicate-layer"] for one in told] == ["message-id", "business-key"]
    assert {one["first-offset"] for one in told} == {"1"}
    assert {one["first-partition"] for one in told} == {"1"}
    assert {one["first-topic"] for one in told} == {topic}

    events = [json.loads(one.value) for one in await written(world, f"{name}.market.continuity")]
    gaps = [one for one in events if one["oddity"] == "gap"]
    assert [(one["id"], one["newest_id"], one["missing"]) for one in gaps] == [(5, 2, 2)]
    assert gaps[0]["source_offset"] == 5
    assert (gaps[0]["exchange"], gaps[0]["symbol"]) == ("X", "BTC")

    (letter,) = await world.dead_letters()
    assert letter.value == values[4]
    assert headers_of(letter)["source-offset"] == "4"


async def test_unique_messages_in_the_database_once_each(world: World) -> None:
    table = f"{world.settings.app_id}_messages"
    await prepare_jobs(world, "market", market_table=table, checkpoint_ms=300)
    us = now_ms() * 1000
    values = [depth(n // 2 + 1, us + n // 2) for n in range(400)]  # each twice
    worker = world.start_worker()
    await send(world, source(world, "market"), [Sent(one, now_ms(), None, 0) for one in values])
    await worker.ready()
    # The table is not there yet: nothing is lost, and nothing counts as seen, before it is.
    await worker.until_metric("heartbeat_judged_total", 400)
    await worker.kill()
    async with world.table.connect() as connection:
        await connection.execute(message_ddl(Table.parse(table)))
        worker = await world.start_worker().ready()
        await no_lag_of_jobs(world)
        query = f"SELECT \"offset\", message->>'seq' AS seq FROM {table} ORDER BY 1"
        rows = await connection.fetch(query)
    assert [(row["offset"], int(row["seq"])) for row in rows] == [
        (2 * n, n + 1) for n in range(200)
    ]


@on_embedded
async def test_without_transactions_on_the_brokers_it_says_so(world: World) -> None:
    await prepare_jobs(world, "market", transactions=True)
    worker = world.start_worker()
    assert await worker.ended(60) == 1
    last = worker.log_text().splitlines()[-1]
    assert "HEARTBEAT_TRANSACTIONS" in last
    assert "Traceback" not in worker.log_text()
