"""What is measured of throughput, and what is made of it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from heartbeat_stream.bench.load import Load

__all__ = [
    "BesideCeiling",
    "Run",
    "Scenario",
    "Throughput",
    "WorkerRun",
    "median",
    "median_cpu_us",
    "sustained",
]


@dataclass(frozen=True)
class Scenario:
    """What is put into the topic, and how the worker is set.

    ``warm``: all rooms are known and written before, by another worker. ``statement_s``: how much
    longer each statement takes in the database. ``crash``: whether a worker is also killed half
    way. ``settings`` by name, as in ``{"cooldown_ms": "0"}``.
    """

    name: str
    load: Load
    keyed: bool = True
    partitions: int = 8
    warm: bool = False
    statement_s: float = 0.0
    crash: bool = False
    settings: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """One measurement of one system."""

    messages: int
    seconds: float
    cpu_seconds: float

    @property
    def per_second(self) -> float:
        return self.messages / self.seconds

    @property
    def cpu_us(self) -> float:
        """Microseconds of CPU time per message."""
        return 1e6 * self.cpu_seconds / self.messages


@dataclass(frozen=True)
class WorkerRun(Run):
    """One measurement of a worker: ``seconds`` from ready until everything was committed.

    ``sustained``: messages per second between commits, so without the start, and without the time
    for which a worker that has read everything waits for its next checkpoint; None if not known.
    """

    sustained: float | None
    rows_written: int
    idle_rss: int
    peak_rss: int
    longest_stall_s: float


class BesideCeiling:
    """Runs of a worker, and of the ceiling over the same topic."""

    ceiling: Sequence[Run]
    worker: Sequence[Run]

    @property
    def ratio(self) -> float:
        """The worker's median beside the ceiling's."""
        return median(self.worker) / median(self.ceiling)

    @property
    def cpu_ratio(self) -> float:
        """The same in messages per second of CPU time."""
        return median_cpu_us(self.ceiling) / median_cpu_us(self.worker)


@dataclass(frozen=True)
class Throughput(BesideCeiling):
    """All measurements of a scenario; ``peers`` by name."""

    scenario: Scenario
    broker: str
    bytes_per_value: float
    ceiling: Sequence[Run]
    worker: Sequence[WorkerRun]
    peers: Mapping[str, Run] = field(default_factory=dict)

    @property
    def sustained(self) -> float | None:
        """The median of what was sustained, in messages per second."""
        known = [run.sustained for run in self.worker if run.sustained is not None]
        return statistics.median(known) if known else None


def median(runs: Sequence[Run]) -> float:
    return statistics.median(run.per_second for run in runs)


def median_cpu_us(runs: Sequence[Run]) -> float:
    return statistics.median(run.cpu_us for run in runs)


def sustained(commits: Sequence[tuple[float, int]], messages: int) -> float | None:
    """Messages per second from the first commit to the last one before all were covered.

    ``commits``: seconds since the start, and how many messages were committed by then, one each
    time that this grew. None where there were fewer than two such commits.
    """
    before = [(seconds, done) for seconds, done in commits if 0 < done < messages]
    if len(before) < 2:
        return None
    (first_at, first), (last_at, last) = before[0], before[-1]
    return (last - first) / (last_at - first_at)
