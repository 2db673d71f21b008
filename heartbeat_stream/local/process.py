"""A server as a child process that certainly ends with its parent, and ports for such servers.

`ServerProcess` starts `supervisor.py`, which starts the server: however this process ends, also by
`kill -9`, the supervisor sees it and ends the server. See there for the reasons.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypedDict

LOOPBACK = "127.0.0.1"
SUPERVISOR = Path(__file__).with_name("supervisor.py")
START_SECONDS = 20.0
POLL_SECONDS = 0.02
EXTRA_MISSING = "install the extra: pip install 'heartbeat-stream[local]'"
LOG_TAIL_LINES = 8
LOG_TAIL_BYTES = 16_384
# Below the ports that systems hand out to outgoing connections (32768 and up on Linux, 49152 and
# up elsewhere): a client that retries while the server is down could otherwise be given the
# server's own port, connect to itself and keep the server from coming back.
PORTS = range(15_000, 32_000)

_ports_given: set[int] = set()


class ServerError(RuntimeError):
    """A server could not be started or did not answer. The message is one line."""


class Order(TypedDict):
    """What the supervisor is asked for. Signals are numbers."""

    command: list[str]
    directory: str
    environment: dict[str, str]
    log: str
    uid: int | None
    parent: int
    end_signal: int
    grace_seconds: float
    remove: list[str]


def suspend(pid: int) -> None:
    """Stop a process until it gets SIGCONT, and return once all its threads have stopped: the
    signal takes its time. Does nothing to one that has ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
        deadline = time.monotonic() + START_SECONDS
        while _runs(pid) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)


def _runs(pid: int) -> bool:
    """Whether a thread of a process may run. Where there is no procfs: no."""
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(OSError):  # one that ends meanwhile
            if stat.read_text().rpartition(")")[2].split()[0] not in "TtZX":
                return True
    return False


def wheel_directory(package: str) -> Path | None:
    """Where the wheel's package is installed, None where it is not. Runs none of its code."""
    spec = importlib.util.find_spec(package)
    locations = spec.submodule_search_locations if spec is not None else None
    return Path(next(iter(locations))) if locations else None


def port_is_free(port: int) -> bool:
    """Whether a server could listen on this loopback port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """A loopback port on which nothing listens and which this process has not handed out yet.

    Raises ServerError where none is found in a hundred tries.
    """
    for port in random.sample(PORTS, 100):
        if port not in _ports_given and port_is_free(port):
            _ports_given.add(port)
            return port
    raise ServerError(f"no free port between {PORTS.start} and {PORTS.stop}")


def take_port(port: int, name: str) -> int:
    """`port` if it is free, a free one if it is 0. Raises ServerError if it is taken."""
    if port == 0:
        return free_port()
    if not port_is_free(port):
        raise ServerError(f"port {port} is taken: choose another one for the {name}, or 0 for any")
    return port


def children_of(pid: int) -> list[int]:
    """The processes whose parent is `pid` at this moment."""
    return [child for child, parent in _processes() if parent == pid]


def _processes() -> Iterator[tuple[int, int]]:
    """Every process id with its parent's. Small containers have no `ps`, macOS has no /proc."""
    if Path("/proc/self/stat").exists():
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                with contextlib.suppress(OSError):  # ended meanwhile
                    # The name, in parentheses, may contain anything; state and parent follow it.
                    fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                    yield int(entry.name), int(fields[1])
        return
    listing = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True
    )
    for line in listing.stdout.splitlines():
        child, parent = line.split()
        yield int(child), int(parent)


class ServerProcess:
    """One server. Not safe to use from several threads at once.

    name: for messages. directory: its working directory. environment: all of its environment,
    nothing is inherited. uid: the user to run as, None for the present one. end_signal and
    grace_seconds: how the server is ended when this process is gone, before it is killed.
    remove: directories to remove in that case (not on an ordinary stop).
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        directory: Path,
        log: Path,
        environment: Mapping[str, str],
        uid: int | None = None,
        end_signal: signal.Signals = signal.SIGTERM,
        grace_seconds: float = 5.0,
        remove: Sequence[Path] = (),
    ) -> None:
        self.name = name
        self.log = log
        self._order = Order(
            command=list(command),
            directory=str(directory),
            environment=dict(environment),
            log=str(log),
            uid=uid,
            parent=os.getpid(),
            end_signal=end_signal,
            grace_seconds=grace_seconds,
            remove=[str(path) for path in remove],
        )
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._pid = 0

    @property
    def pid(self) -> int:
        """The server's own process id, to look at it or to freeze it. It must have been started."""
        if self._pid == 0:
            raise ServerError(f"the {self.name} has not been started")
        return self._pid

    @property
    def running(self) -> bool:
        return self._supervisor is not None and self._supervisor.poll() is None

    def start(self) -> None:
        """Start the server. Returns once it has a process id; it need not answer yet.

        Raises ServerError if its program cannot be run.
        """
        if self.running:
            raise ServerError(f"the {self.name} is running already")
        self._supervisor = subprocess.Popen(
            [sys.executable, "-I", "-S", str(SUPERVISOR), json.dumps(self._order)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Out of the terminal's group: Ctrl-C is for us, and we end the servers in order.
            start_new_session=True,
        )
        report = self._report(self._supervisor)
        if "pid" not in report:
            self._supervisor.kill()
            self._forget_supervisor()
            reason = report.get("error", "its supervisor did not report")
            raise ServerError(f"the {self.name} could not be started: {reason}")
        self._pid = int(str(report["pid"]))

    @staticmethod
    def _report(supervisor: subprocess.Popen[bytes]) -> dict[str, object]:
        assert supervisor.stdout is not None
        readable, _, _ = select.select([supervisor.stdout], [], [], START_SECONDS)
        line = supervisor.stdout.readline() if readable else b""
        supervisor.stdout.close()
        return dict(json.loads(line)) if line else {}

    def _forget_supervisor(self) -> None:
        if self._supervisor is not None:
            assert self._supervisor.stdin is not None
            self._supervisor.wait()
            with contextlib.suppress(OSError):
                self._supervisor.stdin.close()
            self._supervisor = None

    def send_signal(self, signum: signal.Signals) -> None:
        """Send the server a signal. Does nothing if it has ended.

        It goes through the supervisor, which knows whether the process id is still the server's.
        """
        if self._supervisor is None:
            return
        assert self._supervisor.stdin is not None
        with contextlib.suppress(OSError):
            self._supervisor.stdin.write(b"signal %d\n" % signum)
            self._supervisor.stdin.flush()

    def wait(self, seconds: float) -> int | None:
        """Wait for the server to end by itself. Its exit code, or None where it goes on."""
        if self._supervisor is None:
            return None
        try:
            code = self._supervisor.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        self._forget_supervisor()
        return code

    def stop(self, signum: signal.Signals = signal.SIGTERM, seconds: float = 10.0) -> None:
        """End the server with `signum`, and after `seconds` with SIGKILL. Safe to repeat."""
        if self._supervisor is None:
            return
        self.send_signal(signum)
        self.send_signal(signal.SIGCONT)  # a frozen server would not hear the first one
        try:
            self._supervisor.wait(seconds)
        except subprocess.TimeoutExpired:
            self.send_signal(signal.SIGKILL)
        self._forget_supervisor()

    def wait_until_ready(self, answers: Callable[[], bool], seconds: float = START_SECONDS) -> None:
        """Return once `answers()` is true.

        Raises ServerError, with the end of the log, where the server ends before that or the
        time is over; it may then still be running.
        """
        deadline = time.monotonic() + seconds
        while not answers():
            if not self.running:
                raise ServerError(self.failure() or f"the {self.name} was stopped at its start")
            if time.monotonic() > deadline:
                raise ServerError(
                    f"the {self.name} did not answer within {seconds:g} s{self._end_of_log()}"
                )
            time.sleep(POLL_SECONDS)

    def failure(self) -> str | None:
        """One line about a server that ended by itself; None while it runs, and once stopped."""
        if self._supervisor is None or self.running:
            return None
        code = self._supervisor.returncode
        return f"the {self.name} has ended by itself with code {code}{self._end_of_log()}"

    def log_tail(self, lines: int = LOG_TAIL_LINES) -> list[str]:
        """The last lines that the server has logged; none where it has logged nothing."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(0, self.log.stat().st_size - LOG_TAIL_BYTES))
                return log.read().decode(errors="replace").strip().splitlines()[-lines:]
        except OSError:
            return []

    def _end_of_log(self) -> str:
        tail = self.log_tail()
        return f"; its log ends: {' | '.join(tail)}" if tail else "; it logged nothing"
