"""What /health/live says of a worker in which something has ended that must not end."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import aiohttp
import pytest

from heartbeat_stream import liveness
from heartbeat_stream.app import Worker
from heartbeat_stream.core.heartbeat import Heartbeat
from heartbeat_stream.local.broker import Broker
from heartbeat_stream.local.fleet import Fleet
from heartbeat_stream.local.postgres import PostgresServer
from heartbeat_stream.local.process import free_port
from heartbeat_stream.streaming.engine import Engine
from tests.support.brokers import on_embedded
from tests.support.oracle import now_ms
from tests.support.own_worker import own_worker
from tests.support.wait import wait_until_async
from tests.support.world import World, load

pytestmark = on_embedded


async def live(worker: Worker) -> tuple[int, list[str]]:
    """What the worker's own web view answers."""
    url = f"http://127.0.0.1:{worker.settings.web_port}/health/live"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        body = await response.json()
        assert body["live"] == (response.status == 200)
        return response.status, body["failed"]


async def is_dead(worker: Worker) -> list[str]:
    """Wait until it is no longer live; what has failed."""
    await wait_until_async(lambda: not worker.liveness()["live"], 15, what="the worker is dead")
    failed: list[str] = worker.liveness()["failed"]
    return failed


async def test_the_checkpoints_have_ended(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    may_end = asyncio.Event()
    for_ever = Engine.checkpoint_forever

    async def that_ends(self: Engine, sleep: Any) -> None:
        checkpoints = asyncio.create_task(for_ever(self, sleep))
        await may_end.wait()
        checkpoints.cancel()

    monkeypatch.setattr(Engine, "checkpoint_forever", that_ends)
    await world.prepare()
    async with own_worker(world) as worker:
        assert await live(worker) == (200, [])
        may_end.set()
        assert await is_dead(worker) == ["checkpoints has ended"]
        assert await live(worker) == (503, ["checkpoints has ended"])


async def test_an_agent_has_failed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.prepare()
    async with own_worker(world) as worker:

        def defect(*_: object) -> None:
            raise ZeroDivisionError("a defect of this test's making")

        monkeypatch.setattr(worker.job, "_count", defect)
        assert await live(worker) == (200, [])
        await world.send([Heartbeat(7, "101", now_ms())])
        await is_dead(worker)


async def test_an_agent_has_ended(world: World) -> None:
    await world.prepare()
    async with own_worker(world) as worker:
        assert await live(worker) == (200, [])
        for agent in worker.app.agents.values():
            await agent.stop()
        failed = await is_dead(worker)
        assert all("agent" in one and "has ended" in one for one in failed), failed
        assert await live(worker) == (503, failed)


async def test_the_consumer_stands_still(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveness, "STANDSTILL_S", 2.0)
    await world.prepare()
    async with own_worker(world) as worker:
        await wait_until_async(
            lambda: "the consumer" in worker.parts._ticks, what="the consumer has been seen"
        )
        assert await live(worker) == (200, [])
        go_on = threading.Event()
        worker.app.ledger._thread.thread_loop.call_soon_threadsafe(go_on.wait, 30)
        try:
            assert await is_dead(worker) == ["the consumer stands still"]
            assert await live(worker) == (503, ["the consumer stands still"])
        finally:
            go_on.set()
        await wait_until_async(lambda: worker.liveness()["live"], what="it goes on")


async def test_writing_stands_still(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveness, "STANDSTILL_S", 2.0)
    may_go_on = asyncio.Event()
    may_go_on.set()
    drain = Worker._drain

    async def that_may_hang(self: Worker) -> None:
        await drain(self)
        await may_go_on.wait()

    monkeypatch.setattr(Worker, "_drain", that_may_hang)
    await world.prepare()
    async with own_worker(world) as worker:
        await wait_until_async(lambda: "writing" in worker.parts._ticks, what="it has begun")
        assert await live(worker) == (200, [])
        may_go_on.clear()
        assert await is_dead(worker) == ["writing stands still"]
        assert await live(worker) == (503, ["writing stands still"])
        may_go_on.set()
        await wait_until_async(lambda: worker.liveness()["live"], what="it goes on")


async def test_servers_that_are_away_are_no_reason(world: World) -> None:
    with Broker() as broker, PostgresServer() as database:
        world.bootstrap_servers = broker.bootstrap_servers
        await world.prepare(
            brokers=broker.bootstrap_servers,
            database_url=database.url,
            session_timeout_ms=broker.session_timeout_ms,
            cooldown_ms=500,
        )
        worker = await world.start_worker().ready()
        async with load(world, Fleet(hotels=1, rooms_per_hotel=50), rate=200):
            await worker.until_metric("heartbeat_rows_written_total", 50)
        database.stop("immediate")
        broker.stop()

        async def has_tried_for_long() -> bool:
            status, body = await worker.get("/health/live")
            assert (status, json.loads(body)) == (200, {"live": True, "failed": []})
            figures = await worker.metrics()
            return (
                figures["heartbeat_write_retries_total"] > 10
                and figures["heartbeat_fetch_age_seconds"] > 10
            )

        await worker.until(has_tried_for_long, 60, what="brokers and database have been away")


async def test_a_worker_that_waits_for_its_brokers_answers(world: World) -> None:
    world.set(brokers=f"127.0.0.1:{free_port()}")
    worker = world.start_worker()

    async def answers() -> bool:
        return bool(worker.port) and (await worker.get("/health/live"))[0] == 200

    await worker.until(answers, what="/health/live answers with 200")
    status, body = await worker.get("/health/ready")
    assert status == 503
    assert json.loads(body)["ready"] is False
    figures = await worker.metrics()
    assert (figures["heartbeat_live"], figures["heartbeat_ready"]) == (1, 0)
    assert figures["heartbeat_worker_info"] == 1
    assert "heartbeat_records_total" not in figures
    for path in ("/", "/table/", "/table/latest/7:101/", "/router/"):
        assert (await worker.get(path))[0] < 500, path
    worker.terminate()
    assert await worker.ended(10) == 0
    assert "Traceback" not in worker.log_text()
