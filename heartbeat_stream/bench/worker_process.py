"""A worker as a user runs it, in a process of its own, looked at from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import psutil  # type: ignore[import-untyped]

from heartbeat_stream.local.process import LOOPBACK, ServerProcess, free_port

__all__ = ["BenchError", "WorkerProcess", "run_command"]

_READY_S = 300.0
_POLL_S = 0.02


class BenchError(Exception):
    """A benchmark cannot go on. The message is one line."""


def _environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Ours, so that a user may benchmark settings of his own, with these on top."""
    return {**os.environ, **settings}


def run_command(name: str, settings: Mapping[str, str], directory: Path) -> None:
    """Run a command of the product to its end. Raises BenchError where it fails."""
    done = subprocess.run(
        [sys.executable, "-m", "heartbeat_stream", name],
        cwd=directory,  # no .env file of the user's
        env=_environment(settings),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise BenchError(
            f"heartbeat-stream {name} failed: {said[-1] if said else 'it said nothing'}"
        )


class WorkerProcess:
    """One worker. A context manager, which kills what was not stopped."""

    def __init__(self, settings: Mapping[str, str], directory: Path, name: str = "worker") -> None:
        self.port = free_port()
        self.log = directory / f"{name}.log"
        self._process = ServerProcess(
            "worker",
            [sys.executable, "-m", "heartbeat_stream", "worker"],
            directory=directory,
            log=self.log,
            environment=_environment({**settings, "HEARTBEAT_WEB_PORT": str(self.port)}),
        )
        self.started_at = 0.0
        self.ready_at = 0.0

    def start(self) -> None:
        """Start the process. Raises ServerError."""
        self.started_at = time.perf_counter()
        self._process.start()

    def wait_until_ready(self) -> float:
        """Return once /health/ready says so: the seconds since the start. Raises ServerError."""
        deadline = time.perf_counter() + _READY_S
        while not self._is_ready():
            self.check()
            if time.perf_counter() > deadline:
                raise BenchError(f"the worker was not ready within {_READY_S:g} s: see {self.log}")
            time.sleep(_POLL_S)
        self.ready_at = time.perf_counter()
        return self.ready_at - self.started_at

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{LOOPBACK}:{self.port}/health/ready", timeout=5):
                return True
        except (urllib.error.URLError, OSError):
            return False

    def check(self) -> None:
        """Raises BenchError where the worker has ended by itself."""
        failure = self._process.failure()
        if failure is not None:
            raise BenchError(failure)

    @property
    def pid(self) -> int:
        return self._process.pid

    def cpu_seconds(self) -> float:
        """CPU time of the process so far, all threads."""
        times = psutil.Process(self.pid).cpu_times()
        return float(times.user + times.system)

    def resident_bytes(self) -> int:
        return int(psutil.Process(self.pid).memory_info().rss)

    def metrics(self) -> dict[str, float]:
        """Every sample of /metrics, by name and labels as they are written there."""
        with urllib.request.urlopen(f"http://{LOOPBACK}:{self.port}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        samples = (line.rpartition(" ") for line in lines if line and not line.startswith("#"))
        return {name: float(value) for name, _, value in samples}

    def readiness(self) -> dict[str, object]:
        """What /health/ready says in detail."""
        url = f"http://{LOOPBACK}:{self.port}/health/ready"
        with urllib.request.urlopen(url, timeout=5) as answer:
            return dict(json.load(answer))

    def said(self) -> str:
        """All that the workers of this directory have logged so far."""
        return self.log.read_text(errors="replace")

    def kill(self) -> None:
        """End it as a crash does."""
        self._process.stop(signal.SIGKILL)

    def stop(self, seconds: float = 30.0) -> float:
        """End it in order; the seconds that it took."""
        started = time.perf_counter()
        self._process.stop(signal.SIGTERM, seconds)
        return time.perf_counter() - started

    def __enter__(self) -> WorkerProcess:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
