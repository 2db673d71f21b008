"""Messages per second of one worker on a topic that is full before it starts, beside the ceiling.

Both are measured in turn, several times: a machine's speed changes while one looks at it. CPU time
is taken beside wall time; it does not suffer from whatever else the machine does.

A worker is killed the moment it has committed everything, and what it leaves must be right
(`verification.py`). One more worker, not measured, is killed half way and started again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path

from heartbeat_stream.bench.filling import fill
from heartbeat_stream.bench.ground import Ground, Site
from heartbeat_stream.bench.load import Load, RollCall
from heartbeat_stream.bench.peer_runs import Peer, run_peer
from heartbeat_stream.bench.profiler import Profile
from heartbeat_stream.bench.runs import Run, Scenario, Throughput, WorkerRun, sustained
from heartbeat_stream.bench.verification import AT_ONCE, verify, wait_until_written
from heartbeat_stream.bench.worker_process import BenchError, WorkerProcess
from heartbeat_stream.local.offsets import GroupOffsets, end_offsets, open_group_offsets

__all__ = ["committed", "measure", "run_ceiling", "wait_until_committed"]

_POLL_S = 0.05
_GIVE_UP_S = 600.0
#: Of the heartbeats, how many are committed when a worker is killed half way.
_KILLED_AT = 0.3

_SLOW_STATEMENTS = """
CREATE OR REPLACE FUNCTION bench_wait() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM pg_sleep({seconds}); RETURN NULL; END $$;
CREATE TRIGGER bench_wait BEFORE INSERT ON {table} FOR EACH STATEMENT EXECUTE FUNCTION bench_wait();
"""

Say = Callable[[str], None]


async def measure(
    ground: Ground,
    scenarios: Sequence[Scenario],
    rounds: int,
    say: Say,
    *,
    peers: Sequence[tuple[Peer, Path]] = (),
    profile: Profile | None = None,
) -> list[Throughput]:
    """Fill topics, then measure each scenario in turn, round by round.

    The peers, each with the Python that has it, are run once on each topic. With a profile, one
    more round is run under it, which does not count. Raises BenchError and SendError.
    """
    tests = [_Test(ground, scenario, say) for scenario in scenarios]
    for test in tests:
        await test.prepare()
    for number in range(1, rounds + 1):
        for test in tests:
            # Odd rounds leave the next worker with the changelogs alone.
            await test.round(f"{number} of {rounds}", keep_files=number % 2 == 0)
    for test in tests:
        for peer, python in peers:
            await test.peer(peer, python)
        if test.scenario.crash:
            await test.crash()
        if profile is not None:
            await test.worker("profile", keep_files=True, profile=profile)
    return [test.result() for test in tests]


async def run_ceiling(
    brokers: str, topic: str, partitions: int, messages: int, what: str = "heartbeats"
) -> Run:
    """The yardstick on a topic that is full, for the records of a job. Raises BenchError."""
    command = [sys.executable, "-m", "heartbeat_stream.bench.ceiling", brokers, topic]
    command += [str(partitions), str(messages), what]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    output, _ = await process.communicate()
    if process.returncode:
        raise BenchError(f"the ceiling failed with code {process.returncode}")
    result = json.loads(output)
    return Run(result["messages"], result["seconds"], result["cpu_seconds"])


class _Test:
    """One scenario on one broker."""

    def __init__(self, ground: Ground, scenario: Scenario, say: Say) -> None:
        self.scenario = scenario
        self._name = f"{scenario.name} on {ground.kind}"
        self._topic = self._roll_topic = ""
        self._ground = ground
        self._say = say
        self._roll_call = RollCall(scenario.load.rooms, scenario.load.start_ms - 1)
        self._newest: Mapping[int, int] = {}
        self._bytes_per_value = 0.0
        self._ceiling: list[Run] = []
        self._workers: list[WorkerRun] = []
        self._peers: dict[str, Run] = {}

    async def prepare(self) -> None:
        """Fill the topics."""
        scenario = self.scenario
        self._newest = await asyncio.to_thread(scenario.load.newest)
        if scenario.warm:
            self._newest = {**self._roll_call.newest(), **self._newest}
            self._roll_topic = await self._ground.create_topic("roll-call", scenario.partitions)
            await self._fill(self._roll_topic, self._roll_call)
        self._topic = await self._ground.create_topic(scenario.name, scenario.partitions)
        self._bytes_per_value = await self._fill(self._topic, scenario.load)

    async def round(self, label: str, *, keep_files: bool) -> None:
        """Measure ceiling and worker."""
        self._say(f"{self._name}: ceiling, {label}")
        partitions, messages = self.scenario.partitions, self.scenario.load.messages
        self._ceiling.append(
            await run_ceiling(self._ground.brokers, self._topic, partitions, messages)
        )
        self._workers.append(await self.worker(label, keep_files=keep_files))

    async def peer(self, peer: Peer, python: Path) -> None:
        """Measure another framework."""
        self._say(f"{self._name}: {peer.name}")
        messages = min(peer.messages, self.scenario.load.messages)
        brokers, directory = self._ground.brokers, self._ground.directory
        self._peers[peer.name] = await run_peer(
            peer, python, brokers, self._topic, directory, messages
        )

    def result(self) -> Throughput:
        return Throughput(
            self.scenario,
            self._ground.kind,
            self._bytes_per_value,
            self._ceiling,
            self._workers,
            self._peers,
        )

    async def _fill(self, topic: str, load: Load | RollCall) -> float:
        def on_progress(sent: int) -> None:
            self._say(f"{self._name}: {sent:,} of {load.messages:,} heartbeats sent")

        return await fill(
            self._ground.brokers, topic, load, keyed=self.scenario.keyed, on_progress=on_progress
        )

    async def _site(self) -> Site:
        """A new site; where the scenario is warm, all its rooms are known and written."""
        scenario = self.scenario
        site = self._ground.site(
            self._topic, scenario.partitions, keyed=scenario.keyed, **scenario.settings
        )
        await asyncio.to_thread(site.init)
        if scenario.warm:
            self._say(f"{self._name}: {scenario.load.rooms:,} rooms become known")
            with site.worker(topic=self._roll_topic, **AT_ONCE) as worker:
                await asyncio.to_thread(worker.wait_until_ready)
                await wait_until_committed(site, worker, self._roll_topic, scenario.load.rooms)
                await wait_until_written(worker)
                await asyncio.to_thread(worker.stop)
        if scenario.statement_s:
            await self._ground.execute(
                _SLOW_STATEMENTS.format(seconds=scenario.statement_s, table=site.table.quoted)
            )
        return site

    async def worker(
        self, label: str, *, keep_files: bool, profile: Profile | None = None
    ) -> WorkerRun:
        """Measure a worker on a site of its own. Raises BenchError where it did anything wrong."""
        site = await self._site()
        with site.worker() as worker:
            await asyncio.to_thread(worker.wait_until_ready)
            idle, cpu = worker.resident_bytes(), worker.cpu_seconds()
            peak = idle
            commits: list[tuple[float, int]] = []
            with contextlib.ExitStack() as profiling:
                if profile is not None:
                    profiling.enter_context(profile.of(worker.pid))
                async for done in self._progress(site, worker, label):
                    elapsed = time.perf_counter() - worker.ready_at
                    if not commits or done > commits[-1][1]:
                        commits.append((elapsed, done))
                    peak = max(peak, worker.resident_bytes())
            seconds = time.perf_counter() - worker.ready_at
            cpu = worker.cpu_seconds() - cpu
            figures = await asyncio.to_thread(worker.metrics)
            worker.kill()
        await self._verify(site, label, keep_files=keep_files)
        messages = self.scenario.load.messages
        return WorkerRun(
            messages,
            seconds,
            cpu,
            sustained=sustained(commits, messages) if self.scenario.keyed else None,
            rows_written=int(figures["heartbeat_rows_written_total"]),
            idle_rss=idle,
            peak_rss=peak,
            longest_stall_s=figures["heartbeat_loop_stall_seconds_max"],
        )

    async def crash(self) -> None:
        """Kill a worker half way, start it again, kill that one too. Raises BenchError."""
        site = await self._site()
        with site.worker() as worker:
            await asyncio.to_thread(worker.wait_until_ready)
            async for done in self._progress(site, worker, "to be killed"):
                if done >= _KILLED_AT * self.scenario.load.messages:
                    break
            worker.kill()
        with site.worker() as worker:
            await asyncio.to_thread(worker.wait_until_ready)
            async for _ in self._progress(site, worker, "started again"):
                pass
            worker.kill()
        await self._verify(site, "started again", keep_files=True)

    async def _progress(self, site: Site, worker: WorkerProcess, label: str) -> AsyncIterator[int]:
        messages = self.scenario.load.messages
        async for done in committed(site, worker, self._topic, messages):
            self._say(f"{self._name}: worker {label}, {done:,} of {messages:,} committed")
            yield done

    async def _verify(self, site: Site, label: str, *, keep_files: bool) -> None:
        self._say(f"{self._name}: worker {label}, comparing rows and state")
        if not keep_files:
            shutil.rmtree(site.data)
        await verify(site, self._newest)


async def wait_until_committed(
    site: Site, worker: WorkerProcess, topic: str, messages: int
) -> None:
    """Return once so many records of the topic are committed. Raises BenchError."""
    async for _ in committed(site, worker, topic, messages):
        pass


async def committed(
    site: Site, worker: WorkerProcess, topic: str, messages: int
) -> AsyncIterator[int]:
    """How many records of the source are committed, until all of them are, and their forwarding.

    Raises BenchError when it takes too long, or the worker has ended.
    """
    deadline = time.perf_counter() + _GIVE_UP_S
    brokers = site.settings["HEARTBEAT_BROKERS"]
    async with open_group_offsets(brokers, site.app_id) as offsets:
        done = 0
        while done < messages:
            worker.check()
            if time.perf_counter() > deadline:
                raise BenchError(f"{done:,} records committed after {_GIVE_UP_S:g} s")
            await asyncio.sleep(_POLL_S)
            done = sum((await offsets.committed(topic, site.partitions)).values())
            yield done
        if not site.keyed:
            await _forwarded(offsets, brokers, site)


async def _forwarded(offsets: GroupOffsets, brokers: str, site: Site) -> None:
    """Return once everything that was forwarded is committed, too."""
    done = await offsets.committed(site.repartition, site.partitions)
    ends = await end_offsets(brokers, done)
    while any(done[tp] < end for tp, end in ends.items()):
        await asyncio.sleep(_POLL_S)
        done = await offsets.committed(site.repartition, site.partitions)
