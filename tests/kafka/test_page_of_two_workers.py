"""The page with two workers behind one token: each shows both, and asks the other with a pass."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import urlencode

import pytest

from heartbeat_stream.core.heartbeat import Heartbeat, room_key
from heartbeat_stream.core.partition import partition_for
from tests.support.answers import ask
from tests.support.odd_rooms import ODD_ROOMS, columns, table_path
from tests.support.oracle import Oracle, now_ms
from tests.support.worker import Worker
from tests.support.world import PARTITIONS, World

pytestmark = pytest.mark.kafka

TOKEN = "the-token-of-both-workers"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


async def asked(worker: Worker, view: str, **query: Any) -> Any:
    answer = await ask(worker.port, f"/ui/api/{view}?{urlencode(query)}", BEARER)
    assert answer.status == 200, (view, query, answer.text)
    return json.loads(answer.text)


async def test_two_workers_with_one_token(world: World) -> None:
    await world.prepare(web_token=TOKEN, session_timeout_ms=30_000)
    workers = [world.start_worker() for _ in range(2)]
    first, second = await asyncio.gather(*(worker.ready() for worker in workers))

    async def shared() -> bool:
        lines = (await asked(first, "overview"))["workers"]
        return len(lines) == 2 and all(line["partitions"] and line["ready"] for line in lines)

    await first.until(shared, 60, what="each has a share of the partitions")
    oracle = Oracle()
    sent = [Heartbeat(7, room, now_ms(), "d", 1) for room in ODD_ROOMS]
    sent += [Heartbeat(7, f"{number}", now_ms()) for number in range(1000, 1050)]
    await world.send(sent, oracle=oracle)
    await oracle.matches(world.table)
    await world.no_lag()

    for worker in workers:
        seen = await asked(worker, "overview")
        assert seen["verdict"]["level"] == "well", seen["verdict"]
        assert seen["rooms"]["in_memory"] == len(sent)
        owners = {
            partition: line["url"] for line in seen["workers"] for partition in line["partitions"]
        }
        assert owners.keys() == set(range(PARTITIONS))
        assert [line["url"] for line in seen["workers"] if line["asked"]] == [
            f"http://127.0.0.1:{worker.port}"
        ]
        for one in sent[: len(ODD_ROOMS)]:
            room = await asked(worker, "room", hotel=7, room=one.room_id)
            assert room["newest"] == columns(one)
            assert room["owner"] == owners[partition_for(room_key(7, one.room_id), PARTITIONS)]
            table = await ask(worker.port, table_path("latest", one.room_id), BEARER)
            assert json.loads(table.text) == columns(one)
        found, after = [], None
        while True:
            more: dict[str, Any] = {"after": after} if after is not None else {}
            page = await asked(worker, "rooms", hotel=7, limit=20, **more)
            assert page["missing"] == []
            found += [room["newest"]["room_id"] for room in page["rooms"]]
            after = page["next"]
            if after is None:
                break
        assert found == sorted((one.room_id for one in sent), key=str.encode)

    # One that does not answer is said to, and its rooms are missing, not forgotten.
    second.freeze()
    try:
        seen = await asked(first, "overview")
        page = await asked(first, "rooms", hotel=7)
    finally:
        second.thaw()
    url = f"http://127.0.0.1:{second.port}"
    assert seen["verdict"]["level"] == "trouble"
    assert f"{url} does not answer" in seen["verdict"]["text"]
    assert [url in line for line in page["missing"]] == [True]
    assert 0 < len(page["rooms"]) < len(sent)
    assert all(TOKEN not in worker.log_text() for worker in workers)


async def test_a_worker_with_another_token_is_said_to_be_one(world: World) -> None:
    await world.prepare()
    first = world.start_worker(web_token=TOKEN)
    second = world.start_worker(web_token=TOKEN + "-of-another")
    await asyncio.gather(first.ready(), second.ready())

    async def refused() -> bool:
        lines = (await asked(first, "overview"))["workers"]
        return any("HEARTBEAT_WEB_TOKEN" in (line["error"] or "") for line in lines)

    await first.until(refused, 60, what="the other one does not let it in")
