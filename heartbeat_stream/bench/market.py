"""Market messages per second of one worker, all three layers on and durable, beside the ceiling.

Measured as heartbeats are (`throughput.py`): a full topic, a worker of its own with its default
settings, CPU time beside wall time. The worker is killed the moment it has committed everything.
What came out must then be each new message once, and another worker must recognise old messages by
what is left of the state.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from heartbeat_stream.bench.ground import Ground, Site
from heartbeat_stream.bench.profiler import Profile
from heartbeat_stream.bench.runs import BesideCeiling, Run
from heartbeat_stream.bench.throughput import committed, run_ceiling, wait_until_committed
from heartbeat_stream.bench.verification import read_topic
from heartbeat_stream.bench.worker_process import BenchError
from heartbeat_stream.local.judged_feeds import MarketFeed
from heartbeat_stream.local.judged_traffic import Truth
from heartbeat_stream.local.market_traffic import Kind
from heartbeat_stream.local.record_sender import Record, open_sender

__all__ = ["MarketRun", "MarketScenario", "MarketThroughput", "measure_market"]

_SEED = 1
_CHUNK = 2_000
#: Messages in a millisecond of the exchanges' time.
_PER_MS = 30
#: Every so manyth message is sent once more, to a worker that starts with what another one left.
_AGAIN = 20
_PLACE = ("topic", "partition", "offset")

Say = Callable[[str], None]


@dataclass(frozen=True)
class MarketScenario:
    """What is put into the topic. ``keyed``: by the scope, so that nothing is repartitioned."""

    name: str
    messages: int
    keyed: bool = True
    partitions: int = 8


@dataclass(frozen=True)
class MarketRun(Run):
    """One measurement of a worker: ``seconds`` from ready until everything was committed."""

    unique: int
    peak_rss: int
    longest_stall_s: float


@dataclass(frozen=True)
class MarketThroughput(BesideCeiling):
    """All measurements of a scenario. ``duplicates`` are by the kind that they were made as."""

    scenario: MarketScenario
    broker: str
    bytes_per_value: float
    duplicates: dict[str, int]
    ceiling: Sequence[Run]
    worker: Sequence[MarketRun]


async def measure_market(
    ground: Ground, scenario: MarketScenario, rounds: int, say: Say, profile: Profile | None = None
) -> MarketThroughput:
    """Fill a topic, then measure ceiling and worker in turn. Raises BenchError and SendError."""
    test = _Test(ground, scenario, say)
    await test.prepare()
    ceiling, workers = [], []
    for number in range(1, rounds + 1):
        label = f"{number} of {rounds}"
        say(f"{test.name}: ceiling, {label}")
        ceiling.append(await test.ceiling())
        # Odd rounds leave the next worker with the changelogs alone.
        workers.append(await test.worker(label, keep_files=number % 2 == 0))
    if profile is not None:
        await test.worker("profile", keep_files=True, profile=profile)
    return MarketThroughput(
        scenario, ground.kind, test.bytes_per_value, test.duplicates, ceiling, workers
    )


class _Test:
    """One scenario on one broker."""

    def __init__(self, ground: Ground, scenario: MarketScenario, say: Say) -> None:
        self.name = f"{scenario.name} on {ground.kind}"
        self.bytes_per_value = 0.0
        self._ground = ground
        self._scenario = scenario
        self._say = say
        self._feed = MarketFeed(_SEED)
        self._topic = self._again_topic = ""
        self._again: list[tuple[Record, int]] = []

    @property
    def duplicates(self) -> dict[str, int]:
        return {kind: count for kind, count in self._feed.counts.items() if kind != Kind.NEW}

    async def prepare(self) -> None:
        """Fill the topic, and another one with a sample of it.

        By scope also where the worker does not know of it: sources keep a scope's order.
        """
        scenario, ground = self._scenario, self._ground
        self._topic = await ground.create_topic(scenario.name, scenario.partitions)
        sent = size = 0
        async with open_sender(ground.brokers, self._topic, {}) as sender:
            for records in self._records():
                await sender.send_each(records)
                self._again += records[::_AGAIN]
                sent += len(records)
                size += sum(len(value) for (_, value), _ in records)
                self._say(f"{self.name}: {sent:,} of {scenario.messages:,} messages sent")
            await sender.flush()
        self.bytes_per_value = size / sent
        title = f"{scenario.name}-again"
        self._again_topic = await ground.create_topic(title, scenario.partitions)
        async with open_sender(ground.brokers, self._again_topic, {}) as sender:
            await sender.send_each(self._again)
            await sender.flush()

    def _records(self) -> Iterator[list[tuple[Record, int]]]:
        messages = self._scenario.messages
        start_ms = int(time.time() * 1000) - messages // _PER_MS - 60_000
        for start in range(0, messages, _CHUNK):
            now_ms = start_ms + start // _PER_MS
            yield self._feed.generate(now_ms, min(_CHUNK, messages - start))

    async def ceiling(self) -> Run:
        brokers, scenario = self._ground.brokers, self._scenario
        partitions, messages = scenario.partitions, scenario.messages
        return await run_ceiling(brokers, self._topic, partitions, messages, "market")

    async def worker(
        self, label: str, *, keep_files: bool, profile: Profile | None = None
    ) -> MarketRun:
        """Measure a worker on a site of its own. Raises BenchError where it did anything wrong."""
        site = self._site()
        await asyncio.to_thread(site.init)
        messages = self._scenario.messages
        with site.worker() as worker:
            await asyncio.to_thread(worker.wait_until_ready)
            cpu, peak = worker.cpu_seconds(), 0
            with contextlib.ExitStack() as profiling:
                if profile is not None:
                    profiling.enter_context(profile.of(worker.pid))
                async for done in committed(site, worker, self._topic, messages):
                    self._say(f"{self.name}: worker {label}, {done:,} of {messages:,} committed")
                    peak = max(peak, worker.resident_bytes())
            seconds = time.perf_counter() - worker.ready_at
            cpu = worker.cpu_seconds() - cpu
            stall_s = (await asyncio.to_thread(worker.metrics))["heartbeat_loop_stall_seconds_max"]
            worker.kill()
        if not keep_files:
            shutil.rmtree(site.data)
        await self._send_again(site, label)
        unique = await self._verify(site, label)
        return MarketRun(messages, seconds, cpu, unique, peak, stall_s)

    def _site(self) -> Site:
        scenario = self._scenario
        site = self._ground.site(self._topic, scenario.partitions, keyed=scenario.keyed)
        settings = {
            **site.settings,
            "HEARTBEAT_JOBS": "market",
            "HEARTBEAT_MARKET_TOPIC": self._topic,
            "HEARTBEAT_MARKET_KEYED": str(scenario.keyed).lower(),
            "HEARTBEAT_MARKET_UNIQUE_TOPIC": f"{site.app_id}-unique",
            "HEARTBEAT_MARKET_CONTINUITY_TOPIC": f"{site.app_id}-continuity",
        }
        return replace(site, settings=settings)

    async def _send_again(self, site: Site, label: str) -> None:
        """Have another worker judge old messages, by what the first one has left."""
        self._say(f"{self.name}: worker {label}, judging old messages")
        with site.worker(market_topic=self._again_topic) as worker:
            await asyncio.to_thread(worker.wait_until_ready)
            await wait_until_committed(site, worker, self._again_topic, len(self._again))
            await asyncio.to_thread(worker.stop)

    async def _verify(self, site: Site, label: str) -> int:
        """How many came out. Raises BenchError unless each new message did, once."""
        self._say(f"{self.name}: worker {label}, comparing what came out")
        feed, unique = copy.deepcopy(self._feed), 0
        async for records in read_topic(
            site.settings["HEARTBEAT_BROKERS"], f"{site.app_id}-unique", site.partitions
        ):
            unique += len(records)
            for record in records:
                headers = {name: (value or b"").decode() for name, value in record.headers}
                place = "-".join(headers[f"source-{part}"] for part in _PLACE)
                feed.take(record.value or b"", record.timestamp, place)
        truth = feed.truth()
        if truth != Truth(0, 0, 0):
            raise BenchError(
                f"{site.app_id}: false: {truth.false}, missed: {truth.missed}, "
                f"put out again: {truth.repeated}"
            )
        return unique
