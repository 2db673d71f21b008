"""Both embedded servers as one thing, for `heartbeat-stream stack`, the demo and the tests."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Self, TextIO

from heartbeat_stream.local.broker import Broker
from heartbeat_stream.local.postgres import PostgresServer
from heartbeat_stream.local.process import ServerError
from heartbeat_stream.local.scratch import ScratchDirectory
from heartbeat_stream.local.server import LocalServer

CHECK_SECONDS = 0.2
END_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class EmbeddedStack(LocalServer):
    """A broker, a PostgreSQL and a data directory for a worker on them, all of them temporary.

    Ports: 0 for free ones. fsync: whether PostgreSQL's commits survive a crash of the machine.
    A context manager; however the process ends, the servers end and the files go.
    """

    def __init__(
        self, *, broker_port: int = 0, database_port: int = 0, fsync: bool = False
    ) -> None:
        self._scratch = ScratchDirectory("stack")
        try:
            self.broker = Broker(port=broker_port, scratch=self._scratch)
            self.postgres = PostgresServer(port=database_port, scratch=self._scratch, fsync=fsync)
        except BaseException:  # Ctrl-C, too: no directory stays behind
            self._scratch.close()
            raise

    @property
    def directory(self) -> Path:
        """Where everything lies, the servers' logs included."""
        return self._scratch.path

    @property
    def environment(self) -> dict[str, str]:
        """Every setting that a worker on this stack needs.

        The data directory is new with each stack: the broker's topics are, too.
        """
        return {
            "HEARTBEAT_BROKERS": self.broker.bootstrap_servers,
            "HEARTBEAT_DATABASE_URL": self.postgres.url,
            "HEARTBEAT_DATA_DIR": str(self.directory / "data"),
            "HEARTBEAT_SESSION_TIMEOUT_MS": str(self.broker.session_timeout_ms),
        }

    def start(self) -> Self:
        """Start both servers and wait until both answer. Raises ServerError."""
        self.broker.launch()
        self.postgres.start()
        self.broker.wait_until_ready()
        return self

    def failure(self) -> str | None:
        """One line about a server that has ended by itself; None while both run."""
        return self.broker.failure() or self.postgres.failure()

    def close(self) -> None:
        """End both servers and remove their files. Safe to repeat."""
        try:
            self.postgres.close()
        finally:
            try:
                self.broker.close()
            finally:
                self._scratch.close()


def run_stack(
    *,
    broker_port: int = 0,
    database_port: int = 0,
    fsync: bool = False,
    out: TextIO | None = None,
    err: TextIO | None = None,
) -> int:
    """Run the stack in the foreground until SIGINT or SIGTERM; the exit code.

    0: ended by a signal, nothing left behind. 1: a server did not start or ended by itself, said in
    one line on `err`. For the main thread only, whose handlers of the two signals it replaces
    meanwhile. A second signal ends this process at once, and the supervisors the servers.
    """
    out = out or sys.stdout
    err = err or sys.stderr
    stopping = threading.Event()

    def on_signal(_signum: int, _frame: FrameType | None) -> None:
        stopping.set()
        for signum in END_SIGNALS:
            signal.signal(signum, signal.SIG_DFL)

    replaced = {signum: signal.signal(signum, on_signal) for signum in END_SIGNALS}
    try:
        with EmbeddedStack(
            broker_port=broker_port, database_port=database_port, fsync=fsync
        ) as stack:
            if not stopping.is_set():
                for name, value in stack.environment.items():
                    print(f"{name}={value}", file=out)
                print("ready", file=out, flush=True)
                if err.isatty() and not out.isatty():
                    print("heartbeat-stream stack: ready; Ctrl-C ends it", file=err)
            while not stopping.wait(CHECK_SECONDS):
                failure = stack.failure()
                if failure is not None:
                    print(f"heartbeat-stream stack: {failure}", file=err)
                    return 1
    except (ServerError, OSError) as error:
        print(f"heartbeat-stream stack: {error}", file=err)
        return 1
    finally:
        for signum, handler in replaced.items():
            signal.signal(signum, handler)
    return 0
