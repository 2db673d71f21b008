"""A Redis of one's own, for the demo and the tests, where the program is installed."""

from __future__ import annotations

import secrets
import shutil
import socket

from heartbeat_stream.local.process import LOOPBACK, ServerError, ServerProcess, take_port
from heartbeat_stream.local.scratch import ScratchDirectory
from heartbeat_stream.local.server import LocalServer

__all__ = ["RedisServer", "redis_program"]

_PROGRAM = "redis-server"


def redis_program() -> str:
    """Where it is. Raises ServerError where it is not installed."""
    program = shutil.which(_PROGRAM)
    if program is None:
        raise ServerError(
            f"{_PROGRAM} is not installed: install it (Debian's package has that name), or choose "
            "another store"
        )
    return program


class RedisServer(LocalServer):
    """One Redis on a loopback port that keeps nothing on disk, behind a password.

    Raises ServerError where the program is not installed.
    """

    def __init__(self) -> None:
        program = redis_program()
        self.port = take_port(0, "redis")
        self.password = secrets.token_hex(16)
        self._scratch = ScratchDirectory("redis")
        directory = self._scratch.subdirectory("redis")
        options = {
            "port": self.port,
            "bind": LOOPBACK,
            "save": "",
            "appendonly": "no",
            "requirepass": self.password,
            "dir": directory,
        }
        arguments = [text for name, value in options.items() for text in (f"--{name}", str(value))]
        self._process = ServerProcess(
            "redis",
            [program, *arguments],
            directory=directory,
            log=directory / "redis.log",
            environment={},
            remove=[self._scratch.path],
        )

    @property
    def url(self) -> str:
        return f"redis://:{self.password}@{LOOPBACK}:{self.port}/0"

    @property
    def pid(self) -> int:
        return self._process.pid

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((LOOPBACK, self.port)) == 0

    def start(self) -> RedisServer:
        self._process.start()
        self._process.wait_until_ready(self._answers)
        return self

    def close(self) -> None:
        self._process.stop()
        self._scratch.close()
