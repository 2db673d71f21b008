"""How the parts of the benchmarks are run, how large each is, and which figures come of them."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg
from aiokafka.errors import KafkaError

from heartbeat_stream.bench.due_times import Rule
from heartbeat_stream.bench.figures import Figure
from heartbeat_stream.bench.ground import EMBEDDED, Ground, open_ground
from heartbeat_stream.bench.histogram import quantile
from heartbeat_stream.bench.latency import Latency, LatencyTest, measure_latency
from heartbeat_stream.bench.load import Load
from heartbeat_stream.bench.market import MarketScenario, MarketThroughput, measure_market
from heartbeat_stream.bench.peer_runs import PEERS, Peer, installed
from heartbeat_stream.bench.printing import Printing, PrintingTest, measure_printing
from heartbeat_stream.bench.profiler import Profile
from heartbeat_stream.bench.runs import Scenario, Throughput, median
from heartbeat_stream.bench.starting import measure_starts
from heartbeat_stream.bench.state import StateFigures, measure_state
from heartbeat_stream.bench.throughput import measure
from heartbeat_stream.bench.upsert import Measure, compare
from heartbeat_stream.bench.worker_process import BenchError
from heartbeat_stream.local.process import ServerError
from heartbeat_stream.local.record_sender import SendError
from heartbeat_stream.streaming.topic_admin import TopicError

__all__ = ["FULL", "PARTS_OF_THROUGHPUT", "SHORT", "Results", "Size", "Suite"]

PARTS_OF_THROUGHPUT = ("keyed", "unkeyed", "hot", "rooms", "cooldown", "slow-database")

#: What ends a part, and not the others.
_FAILURES = (
    BenchError,
    SendError,
    ServerError,
    TopicError,
    KafkaError,
    asyncpg.PostgresError,
    OSError,
)

_HOT_ROOMS = 10
_STATEMENT_S = 0.05
_BATCH = 5000
_TEXTS = 5000
_HOUR_MS = str(3600 * 1000)

Say = Callable[[str], None]


@dataclass(frozen=True)
class Size:
    """How much of everything. ``rounds`` of `keyed`, of `unkeyed`, and of the others."""

    messages: int
    rooms: int
    rounds: tuple[int, int, int]
    fewest_rooms: int
    most_rooms: int
    latency_s: float
    cooldown_ms: int
    state_rooms: int
    starts: int
    upsert_rounds: int
    market_messages: int
    printing_s: float


FULL = Size(
    4_000_000, 100_000, (2, 2, 1), 10_000, 1_000_000, 75.0, 30_000, 1_000_000, 3, 3, 1_000_000, 30.0
)
SHORT = Size(
    1_000_000, 100_000, (1, 1, 1), 10_000, 300_000, 25.0, 10_000, 200_000, 1, 1, 300_000, 10.0
)


@dataclass
class Results:
    """Everything that was measured."""

    throughput: list[Throughput] = field(default_factory=list)
    upsert: dict[str, dict[str, Measure]] = field(default_factory=dict)
    market: list[MarketThroughput] = field(default_factory=list)
    printing: list[Printing] = field(default_factory=list)
    latency: list[Latency] = field(default_factory=list)
    state: list[StateFigures] = field(default_factory=list)
    starts: dict[str, list[float]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def of(self, name: str) -> Iterator[Throughput]:
        return (one for one in self.throughput if one.scenario.name == name)

    def figures(self) -> list[Figure]:
        """What the goals ask for."""
        return [
            *self._of_throughput(),
            *self._of_market(),
            *self._of_upsert(),
            *self._of_printing(),
            *self._of_latency(),
            *self._of_state(),
            *(
                Figure("start", statistics.median(seconds), broker, f"median of {len(seconds)}")
                for broker, seconds in self.starts.items()
            ),
        ]

    def _of_throughput(self) -> Iterator[Figure]:
        for name in ("keyed", "unkeyed"):
            for one in self.of(name):
                note = f"by CPU time {one.cpu_ratio:.2f}"
                if one.sustained is not None:
                    note += f", sustained {one.sustained / median(one.ceiling):.2f}"
                yield Figure(name, one.ratio, one.broker, note)
        few = {one.broker: one for one in self.of("rooms-few")}
        for many in self.of("rooms-many"):
            one = few[many.broker]
            yield Figure(
                "rooms",
                median(many.worker) / median(one.worker),
                many.broker,
                f"{many.scenario.load.rooms:,} to {one.scenario.load.rooms:,}; the ceiling itself: "
                f"{median(many.ceiling) / median(one.ceiling):.2f}",
            )
        for one in self.of("keyed"):
            quix = one.peers.get(PEERS[0].name)
            if quix is not None:
                yield Figure("quix", median(one.worker) / quix.per_second, one.broker)

    def _of_market(self) -> Iterator[Figure]:
        for one in self.market:
            note = f"{one.scenario.name}; by CPU time {one.cpu_ratio:.2f}"
            yield Figure("market", one.ratio, one.broker, note)

    def _of_upsert(self) -> Iterator[Figure]:
        if not self.upsert:
            return
        ceiling = self.upsert["copy"]
        ratios = {
            (way, phase): measure.rows_per_second / ceiling[phase].rows_per_second
            for way, phases in self.upsert.items()
            for phase, measure in phases.items()
        }
        yield Figure(
            "upsert",
            min(ratios["sink", phase] for phase in ceiling),
            "-",
            "the worse of "
            + ", ".join(f"{phase} {ratios['sink', phase]:.2f}" for phase in ceiling)
            + "; two in flight: "
            + ", ".join(f"{ratios['sink x2', phase]:.2f}" for phase in ceiling),
        )

    def _of_printing(self) -> Iterator[Figure]:
        for one in self.printing:
            note = f"p50 {quantile(one.latencies_ms, 0.5):.0f} ms, {one.test.per_second:,} texts/s"
            yield Figure("printing", quantile(one.latencies_ms, 0.99) / 1000, one.broker, note)

    def _of_latency(self) -> Iterator[Figure]:
        for one in self.latency:
            seen = one.latencies
            late = seen.values + seen.missing
            yield Figure(
                "latency",
                quantile(late, 0.99) / 1000,
                one.broker,
                f"p50 {quantile(late, 0.5):.0f} ms of {len(late):,} writes, "
                f"{one.sent_per_second:,.0f}/s",
            )
            note = "with the worker's start" if one.stall_with_start else ""
            yield Figure("stall", one.stall_s, one.broker, note)

    def _of_state(self) -> Iterator[Figure]:
        for one in self.state:
            yield Figure("memory", one.bytes_per_room, one.broker, f"{one.rooms:,} rooms")
            for goal, what in (("changelog", "changelogs"), ("files", "local files")):
                for recovery in one.recoveries:
                    if recovery.what.startswith(what):
                        yield Figure(
                            goal,
                            recovery.since_start_s,
                            one.broker,
                            f"{one.rooms:,} rooms, {recovery.what.partition(', ')[2]}; "
                            f"{recovery.since_assignment_s:.1f} s from the assignment",
                        )


class Suite:
    """Runs parts on brokers, and collects what they measure."""

    def __init__(
        self, size: Size, parts: Sequence[str], kinds: Sequence[str], brokers: str | None, say: Say
    ) -> None:
        """``brokers``: a cluster that is there, to use as Apache Kafka."""
        self.results = Results()
        self._size = size
        self._parts = [*parts] if "peers" not in parts or "keyed" in parts else ["keyed", *parts]
        self._kinds = kinds
        self._brokers = brokers
        self._say = say

    async def run(self, profile: Callable[[str], Profile | None]) -> None:
        """A part that fails stands in the results' failures, and the others go on.

        ``profile`` gives, by the name of a part, the profile to be taken of it. Raises BenchError
        and ServerError where Apache Kafka does not start.
        """
        for kind in self._kinds:
            # Apache Kafka takes some time to start. The embedded broker keeps everything.
            with contextlib.ExitStack() as shared:
                ground = None if kind == EMBEDDED else shared.enter_context(self._open(kind))
                for part in self._parts:
                    if part == "peers":
                        continue  # with `keyed`, on its topic
                    if part == "upsert" and self.results.upsert:
                        continue  # no broker has a part in it
                    if part in ("latency", "state", "start") and kind != self._kinds[-1]:
                        continue  # once, on Apache Kafka where that is among the brokers
                    try:
                        with contextlib.ExitStack() as own:
                            on = ground or own.enter_context(self._open(kind))
                            await self._run_part(part, on, profile)
                            await on.clear()
                    except _FAILURES as error:
                        self.results.failures.append(f"{part} on {kind}: {error}")

    def _open(self, kind: str) -> contextlib.AbstractContextManager[Ground]:
        self._say(f"starting the servers ({kind})")
        return open_ground(kind, None if kind == EMBEDDED else self._brokers)

    async def _run_part(
        self, part: str, ground: Ground, profile: Callable[[str], Profile | None]
    ) -> None:
        size, results, say = self._size, self.results, self._say
        if part == "upsert":
            ways = ("copy", "sink", "sink x2")
            results.upsert = await compare(
                ground.postgres.url, size.rooms, _BATCH, size.upsert_rounds, ways, say
            )
        elif part == "printing":
            results.printing.append(
                await measure_printing(ground, PrintingTest(_TEXTS, size.printing_s), say)
            )
        elif part == "latency":
            test = LatencyTest(size.rooms, 30_000, size.latency_s, Rule(5000, size.cooldown_ms))
            results.latency.append(await measure_latency(ground, test, say))
        elif part == "state":
            results.state.append(await measure_state(ground, size.state_rooms, say))
        elif part == "start":
            results.starts[ground.kind] = await measure_starts(ground, size.starts, say)
        elif part == "market":
            taken = profile(part)
            for scenario in market_scenarios(size):
                rounds = size.rounds[0] if scenario.keyed else 1
                results.market.append(
                    await measure_market(
                        ground, scenario, rounds, say, taken if scenario.keyed else None
                    )
                )
        elif part in PARTS_OF_THROUGHPUT:
            scenarios = scenarios_of(part, size)
            first, second, others = size.rounds
            results.throughput += await measure(
                ground,
                scenarios,
                {"keyed": first, "unkeyed": second}.get(part, others),
                say,
                peers=self._peers(ground) if part == "keyed" else (),
                profile=profile(part),
            )

    def _peers(self, ground: Ground) -> list[tuple[Peer, Path]]:
        if "peers" not in self._parts or ground.kind != self._kinds[-1]:
            return []
        if ground.kind == EMBEDDED:
            self._say("the peers need Apache Kafka: the embedded broker tells too little of topics")
            return []
        found = [(peer, installed(peer)) for peer in PEERS]
        for peer, python in found:
            if python is None:
                self._say(f"{peer.name} is not installed: make bench-peers")
        return [(peer, python) for peer, python in found if python is not None]


def market_scenarios(size: Size) -> list[MarketScenario]:
    """Those of the part `market`."""
    return [
        MarketScenario("market", size.market_messages),
        MarketScenario("market-unkeyed", size.market_messages, keyed=False),
    ]


def scenarios_of(part: str, size: Size) -> list[Scenario]:
    """The scenarios of a part that measures throughput."""
    start_ms = int(time.time() * 1000) - size.messages // 30 - 60_000

    def load(rooms: int, hot_rooms: int = 0) -> Load:
        return Load(size.messages, rooms, start_ms, hot_rooms)

    match part:
        case "keyed":
            return [Scenario(part, load(size.rooms), crash=True)]
        case "unkeyed":
            return [Scenario(part, load(size.rooms), keyed=False, crash=True)]
        case "hot":
            return [Scenario(part, load(size.rooms, _HOT_ROOMS))]
        case "rooms":
            return [
                Scenario("rooms-few", load(size.fewest_rooms)),
                Scenario("rooms-many", load(size.most_rooms)),
            ]
        case "cooldown":
            settings = {"cooldown_ms": _HOUR_MS}
            return [Scenario(part, load(size.rooms), warm=True, settings=settings)]
        case "slow-database":
            return [Scenario(part, load(size.rooms), statement_s=_STATEMENT_S)]
    raise ValueError(f"no such part: {part}")
