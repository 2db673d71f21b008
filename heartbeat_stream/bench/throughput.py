"""Messages per second of one worker on a topic that is full before it starts, beside the ceiling.

Both are measured in turn, several times: a machine's speed changes while one looks at it. CPU time
is taken beside wall time; it does not suffer from whatever else the machine does.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from heartbeat_stream.bench.filling import create_topic, fill
from heartbeat_stream.bench.load import Load
from heartbeat_stream.bench.profiler import Profile
from heartbeat_stream.bench.worker_process import BenchError, WorkerProcess, run_command
from heartbeat_stream.local.offsets import end_offsets, open_group_offsets
from heartbeat_stream.local.stack import EmbeddedStack

__all__ = ["Run", "Scenario", "Throughput", "measure"]

_POLL_S = 0.05
_GIVE_UP_S = 600.0


@dataclass(frozen=True)
class Scenario:
    """What is put into the topic, and how the worker is set."""

    name: str
    load: Load
    keyed: bool
    partitions: int = 8
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
class Throughput:
    """All measurements of a scenario."""

    scenario: Scenario
    bytes_per_value: float
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


def median(runs: Sequence[Run]) -> float:
    return statistics.median(run.per_second for run in runs)


def median_cpu_us(runs: Sequence[Run]) -> float:
    return statistics.median(run.cpu_us for run in runs)


async def measure(
    stack: EmbeddedStack,
    scenario: Scenario,
    rounds: int,
    say: Callable[[str], None],
    profile: Profile | None = None,
) -> Throughput:
    """Fill a topic, then measure ceiling and worker in turn. Raises BenchError and SendError.

    With a profile, one more round is run under it, which does not count.
    """
    topic = f"bench-{scenario.name}"
    brokers = stack.broker.bootstrap_servers
    await create_topic(brokers, topic, scenario.partitions)
    size = await fill(
        brokers,
        topic,
        scenario.load,
        keyed=scenario.keyed,
        on_progress=lambda sent: say(f"{scenario.name}: {sent:,} heartbeats sent"),
    )
    ceiling, worker = [], []
    for number in range(rounds):
        say(f"{scenario.name}: ceiling {number + 1} of {rounds}")
        ceiling.append(await _run_ceiling(brokers, topic, scenario))
        worker.append(await _run_worker(stack, topic, scenario, f"{number + 1} of {rounds}", say))
    if profile is not None:
        await _run_worker(stack, topic, scenario, "profile", say, profile)
    return Throughput(scenario, size, ceiling, worker)


async def _run_ceiling(brokers: str, topic: str, scenario: Scenario) -> Run:
    command = [sys.executable, "-m", "heartbeat_stream.bench.ceiling", brokers, topic]
    command += [str(scenario.partitions), str(scenario.load.messages)]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    output, _ = await process.communicate()
    if process.returncode:
        raise BenchError(f"the ceiling failed with code {process.returncode}")
    result = json.loads(output)
    return Run(result["messages"], result["seconds"], result["cpu_seconds"])


async def _run_worker(
    stack: EmbeddedStack,
    topic: str,
    scenario: Scenario,
    label: str,
    say: Callable[[str], None],
    profile: Profile | None = None,
) -> Run:
    name = f"{scenario.name}-{label.partition(' ')[0]}"
    directory = _directory(stack, name)
    settings = {
        **stack.environment,
        "HEARTBEAT_APP_ID": name,
        "HEARTBEAT_TOPIC": topic,
        "HEARTBEAT_SOURCE_KEYED": str(scenario.keyed).lower(),
        "HEARTBEAT_TABLE": name.replace("-", "_"),
        "HEARTBEAT_PARTITIONS": str(scenario.partitions),
        "HEARTBEAT_DATA_DIR": str(directory / "data"),
        **scenario.settings,
    }
    await asyncio.to_thread(run_command, "init", settings, directory)
    messages = scenario.load.messages
    with WorkerProcess(settings, directory) as worker:
        await asyncio.to_thread(worker.wait_until_ready)
        cpu = worker.cpu_seconds()
        brokers = stack.broker.bootstrap_servers
        with contextlib.ExitStack() as profiling:
            if profile is not None:
                profiling.enter_context(profile.of(worker.pid))
            async for done in _progress(brokers, name, topic, scenario):
                worker.check()
                say(f"{scenario.name}: worker {label}, {done:,} of {messages:,} committed")
        seconds = time.perf_counter() - worker.ready_at
        return Run(messages, seconds, worker.cpu_seconds() - cpu)


async def _progress(brokers: str, group: str, topic: str, scenario: Scenario) -> AsyncIterator[int]:
    """How many records of the source are committed, until all of them are, and their forwarding.

    Raises BenchError when it takes too long.
    """
    repartition = f"{group}-heartbeats-repartition"
    deadline = time.perf_counter() + _GIVE_UP_S
    async with open_group_offsets(brokers, group) as offsets:
        done = 0
        while done < scenario.load.messages:
            if time.perf_counter() > deadline:
                raise BenchError(f"{done} heartbeats committed after {_GIVE_UP_S:g} s")
            await asyncio.sleep(_POLL_S)
            done = sum((await offsets.committed(topic, scenario.partitions)).values())
            yield done
        if scenario.keyed:
            return
        committed = await offsets.committed(repartition, scenario.partitions)
        ends = await end_offsets(brokers, committed)
        while any(committed[tp] < end for tp, end in ends.items()):
            await asyncio.sleep(_POLL_S)
            committed = await offsets.committed(repartition, scenario.partitions)
            yield done


def _directory(stack: EmbeddedStack, name: str) -> Path:
    path = stack.directory / name
    path.mkdir()
    return path
