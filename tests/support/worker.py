"""A worker as its users run it: a process of its own, looked at through its web view and log."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families
from yarl import URL

from heartbeat_stream.local.process import ServerProcess, free_port, suspend
from tests.support.wait import POLL_SECONDS

# Joining a group on the embedded broker takes 3 s; the rest is for a machine with better to do.
READY_SECONDS = 60.0
END_SECONDS = 30.0
LOG_LINES = 60
INHERITED = ("PATH", "PYTHONPATH")
KILLED = 128 + signal.SIGKILL

_numbers = itertools.count()


class Worker:
    """One worker process. It ends with the test process, however that ends.

    environment: its HEARTBEAT_ variables, all of them. directory: where it runs and logs to.
    """

    def __init__(self, environment: Mapping[str, str], directory: Path) -> None:
        self.name = f"worker {next(_numbers)}"
        self.environment = dict(environment)
        self.log = directory / f"{self.name.replace(' ', '-')}.log"
        self._process = ServerProcess(
            self.name,
            [sys.executable, "-m", "heartbeat_stream", "worker"],
            directory=directory,
            log=self.log,
            environment={
                **{name: os.environ[name] for name in INHERITED if name in os.environ},
                "HOME": str(directory),
                "LC_ALL": "C.UTF-8",
                "PYTHONFAULTHANDLER": "1",
                **self.environment,
            },
        )
        self._port = int(self.environment.get("HEARTBEAT_WEB_PORT", "0"))

    # -- its life --------------------------------------------------------------------------------

    def start(self) -> Worker:
        """Start the process. It is not ready yet."""
        self._process.start()
        return self

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.running

    def terminate(self) -> None:
        """Send SIGTERM, and do not wait."""
        os.kill(self.pid, signal.SIGTERM)

    async def kill(self) -> None:
        """End it with SIGKILL, and wait until it is gone."""
        os.kill(self.pid, signal.SIGKILL)
        assert await self.ended() == KILLED

    def freeze(self) -> None:
        """Suspend it: it keeps its connections and does nothing."""
        suspend(self.pid)

    def thaw(self) -> None:
        """Undo freeze()."""
        os.kill(self.pid, signal.SIGCONT)

    async def ended(self, seconds: float = END_SECONDS) -> int:
        """Wait for its end; the exit code, or 128 and the signal that ended it."""
        code = await asyncio.to_thread(self._process.wait, seconds)
        if code is None:
            raise AssertionError(f"{self.name} has not ended within {seconds:g} s{self.log_end()}")
        return code

    async def stopped(self, seconds: float = END_SECONDS) -> None:
        """End it with SIGTERM, and require the exit code 0."""
        self.terminate()
        code = await self.ended(seconds)
        assert code == 0, f"{self.name} ended with code {code}{self.log_end()}"

    def close(self) -> None:
        """End it in any case. Safe to repeat."""
        self._process.stop(signal.SIGKILL)

    # -- its log ---------------------------------------------------------------------------------

    def log_text(self) -> str:
        """All that it has written."""
        try:
            return self.log.read_text("utf-8", errors="replace")
        except FileNotFoundError:
            return ""

    def log_end(self, lines: int = LOG_LINES) -> str:
        """The end of its log, for a message about a failure."""
        end = "\n".join(self.log_text().splitlines()[-lines:])
        return f"\n--- log of {self.name} ends with:\n{end}\n---"

    # -- its web view ----------------------------------------------------------------------------

    @property
    def port(self) -> int:
        """The port of its web view: the one that was set, or the one it says it has taken."""
        if not self._port:
            found = re.search(r"web view on port (\d+)", self.log_text())
            self._port = int(found[1]) if found else 0
        return self._port

    async def get(self, path: str, seconds: float = 10.0) -> tuple[int, bytes]:
        """Status and body of a page; the path has its odd characters escaped already.

        Raises aiohttp's ClientError, or TimeoutError, where it does not answer.
        """
        url = URL(f"http://127.0.0.1:{self.port}{path}", encoded=True)
        timeout = aiohttp.ClientTimeout(total=seconds)
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as response:
            return response.status, await response.read()

    async def metrics(self) -> dict[str, float]:
        """Its figures by name, labels summed up: ``heartbeat_records_total`` and so on."""
        status, body = await self.get("/metrics")
        assert status == 200, body
        figures: dict[str, float] = {}
        for family in text_string_to_metric_families(body.decode()):
            for sample in family.samples:
                figures[sample.name] = figures.get(sample.name, 0) + sample.value
        return figures

    async def ready(self, seconds: float = READY_SECONDS) -> Worker:
        """Wait until it says that it is ready."""
        await self.until(self.is_ready, seconds, what="/health/ready answers with 200")
        return self

    async def is_ready(self) -> bool:
        return bool(self.port) and (await self.get("/health/ready"))[0] == 200

    async def until(self, condition: Any, seconds: float = 30.0, *, what: str) -> None:
        """Wait for a coroutine function to answer true, while this worker lives.

        What cannot be asked at the moment counts as not true yet.
        """
        try:
            async with asyncio.timeout(seconds):
                while True:
                    try:
                        if await condition():
                            return
                    except (aiohttp.ClientError, OSError):
                        pass
                    if not self.running:
                        raise AssertionError(f"{self.name} has ended: {what}{self.log_end()}")
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError:
            raise AssertionError(
                f"{self.name}, not within {seconds:g} s: {what}{self.log_end()}"
            ) from None

    async def until_metric(
        self, name: str, at_least: float, seconds: float = 30.0
    ) -> dict[str, float]:
        """Wait until a figure has reached a value; all figures of that moment."""
        figures: dict[str, float] = {}

        async def reached() -> bool:
            figures.update(await self.metrics())
            return figures.get(name, 0) >= at_least

        await self.until(reached, seconds, what=f"{name} >= {at_least:g}")
        return figures


class Workers:
    """The workers of one test, all of which end with it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._workers: list[Worker] = []

    def start(self, environment: Mapping[str, str]) -> Worker:
        """Start a worker with these variables, on a web port of its own unless that is set."""
        worker = Worker({"HEARTBEAT_WEB_PORT": str(free_port()), **environment}, self._directory)
        self._workers.append(worker)
        return worker.start()

    def start_with_defaults(self, environment: Mapping[str, str]) -> Worker:
        """Start a worker with these variables alone."""
        worker = Worker(environment, self._directory)
        self._workers.append(worker)
        return worker.start()

    def close(self) -> None:
        """End all of them. What they logged is shown where the test has failed."""
        for worker in self._workers:
            worker.close()
        for worker in self._workers:
            sys.stdout.write(worker.log_end() + "\n")
