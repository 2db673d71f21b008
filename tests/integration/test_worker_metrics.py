"""The figures of a real worker: what they cost, the lag, and a figure that cannot be read."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from faust.types import Message
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from heartbeat_stream.app import Worker
from heartbeat_stream.core.heartbeat import Heartbeat
from heartbeat_stream.jobs.heartbeats import HeartbeatJob
from heartbeat_stream.local.fleet import Fleet
from heartbeat_stream.metrics.catalogue import METRICS
from tests.support.brokers import on_embedded, on_kafka
from tests.support.kafka_admin import delete_records
from tests.support.oracle import now_ms
from tests.support.own_worker import own_worker
from tests.support.wait import wait_until_async
from tests.support.world import PARTITIONS, World, load

COST_MS = 5.0


def rooms(first: int, count: int) -> list[Heartbeat]:
    return [Heartbeat(7, f"{first + number}", now_ms()) for number in range(count)]


async def exposed(worker: Worker) -> dict[str, list[tuple[dict[str, str], float]]]:
    """What the worker's /metrics says, by name: labels and values."""
    url = f"http://127.0.0.1:{worker.settings.web_port}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        assert response.status == 200
        text = await response.text()
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


@on_embedded
async def test_a_look_at_all_figures_costs_little(world: World) -> None:
    await world.prepare(partitions=32)
    async with own_worker(world) as worker, load(world, Fleet(hotels=2, rooms_per_hotel=100), 500):
        await wait_until_async(lambda: worker.job.drain.rows_written >= 200, 30)
        costs = []
        for _ in range(20):
            started = time.thread_time()
            generate_latest(worker.metrics)
            costs.append((time.thread_time() - started) * 1000)
            await asyncio.sleep(0)
    assert statistics.median(costs) < COST_MS, costs


@on_embedded
async def test_a_figure_that_cannot_be_read_hides_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await world.prepare()
    async with own_worker(world) as worker:
        whole = set(await exposed(worker))
        monkeypatch.delattr(worker.job.sink, "rows_turned_away")
        rest = set(await exposed(worker))
        assert {name for name in whole - rest if name in METRICS} == {
            "heartbeat_rows_written_total",
            "heartbeat_rows_turned_away_total",
            "heartbeat_rows_refused_total",
            "heartbeat_database_available",
        }
        assert "heartbeat_records_total" in rest
        assert await exposed(worker)
        said = [record.getMessage() for record in caplog.records if "metrics" in record.name]
        assert said == [
            "cannot read the metrics of database: AttributeError"
            "(\"'PostgresSink' object has no attribute 'rows_turned_away'\")"
        ]


# --- the lag


class Gate:
    """Holds up the work on heartbeats while it is shut."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._open = asyncio.Event()
        self._open.set()
        absorb = HeartbeatJob.absorb

        async def held_up(job: HeartbeatJob, message: Message) -> None:
            await self._open.wait()
            await absorb(job, message)

        monkeypatch.setattr(HeartbeatJob, "absorb", held_up)

    @asynccontextmanager
    async def shut(self) -> AsyncIterator[None]:
        self._open.clear()
        try:
            yield
        finally:
            self._open.set()


async def lag(worker: Worker, figure: str = "heartbeat_lag_records") -> float | None:
    """Over all partitions; None where something is not known of all of them yet."""
    samples = (await exposed(worker)).get(figure, [])
    topics = 1 if worker.settings.source_keyed else 2
    if len(samples) < topics * worker.settings.partitions:
        return None
    assert len({tuple(labels.items()) for labels, _ in samples}) == len(samples)
    assert all(value >= 0 for _, value in samples)
    values = [value for _, value in samples]
    return sum(values) if figure.endswith("records") else max(values)


async def lag_is(worker: Worker, records: int) -> None:
    found: list[object] = []

    async def so() -> bool:
        found.append(await lag(worker))
        return found[-1] == records

    try:
        await wait_until_async(so, 30, what=f"the lag is {records}")
    except AssertionError as error:
        raise AssertionError(f"{error}: it is {found[-1:]}") from None


async def test_the_lag_counts_what_is_not_worked_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    await world.prepare()
    async with own_worker(world) as worker:
        await lag_is(worker, 0)
        assert await lag(worker, "heartbeat_lag_seconds") == 0
        await world.send(rooms(0, 50))
        await wait_until_async(lambda: worker.job.counts["merged"] == 50, what="all are merged")
        await lag_is(worker, 0)
        async with gate.shut():
            before = time.monotonic()
            await world.send(rooms(100, 80))
            await lag_is(worker, 80)
            await wait_until_async(lambda: time.monotonic() - before > 2.0)
            seconds = await lag(worker, "heartbeat_lag_seconds")
            elapsed = time.monotonic() - before
            assert seconds is not None
            # It may be thought older by what lies between two looks and two fetches.
            assert elapsed - 1.0 < seconds < elapsed + 2.0
        await lag_is(worker, 0)
        assert await lag(worker, "heartbeat_lag_seconds") == 0


@on_kafka
async def test_the_lag_is_clamped_at_the_start_of_the_log(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What retention took before anybody had read it will never be worked on."""
    gate = Gate(monkeypatch)
    await world.prepare(source_keyed=True)
    async with own_worker(world) as worker:
        await world.send(rooms(0, 40))
        await wait_until_async(lambda: worker.job.counts["merged"] == 40, what="all are merged")
        await lag_is(worker, 0)
    await world.no_lag()
    await world.send(rooms(100, 400))
    ends = await world.ends()
    kept = 25
    for partition, end in ends.items():
        await delete_records(world.bootstrap_servers, world.topic, partition, end - kept)
    async with gate.shut(), own_worker(world) as worker:
        await lag_is(worker, PARTITIONS * kept)
        gate._open.set()
        await lag_is(worker, 0)
