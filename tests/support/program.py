"""The program as a user runs it, for commands that end by themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

__all__ = ["lines_of", "run_program", "start_program"]

SECONDS = 60
INHERITED = ("PATH", "PYTHONPATH")


def run_program(
    command: str,
    environment: Mapping[str, str],
    directory: Path,
    *arguments: str,
    seconds: float = SECONDS,
) -> subprocess.CompletedProcess[str]:
    """Run ``heartbeat-stream COMMAND`` with these HEARTBEAT_ variables alone, in a directory."""
    return subprocess.run(
        [sys.executable, "-m", "heartbeat_stream", command, *arguments],
        env=_environment(environment, directory),
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


@contextmanager
def start_program(
    command: str, environment: Mapping[str, str], directory: Path, *arguments: str
) -> Iterator[subprocess.Popen[str]]:
    """The same while it runs. It is killed with the block, where it has not ended."""
    process = subprocess.Popen(
        [sys.executable, "-m", "heartbeat_stream", command, *arguments],
        env=_environment(environment, directory),
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def _environment(environment: Mapping[str, str], directory: Path) -> dict[str, str]:
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    return {**inherited, "HOME": str(directory), "LC_ALL": "C.UTF-8", **environment}


def lines_of(done: subprocess.CompletedProcess[str], level: str) -> list[str]:
    """The lines of ``check`` on a level (ok, warn, FAIL), without it."""
    found = [line.split(maxsplit=1) for line in done.stdout.splitlines()]
    return [text for word, text in found if word == level]
