"""The program as a user runs it, for commands that end by themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

__all__ = ["lines_of", "run_program"]

SECONDS = 60
INHERITED = ("PATH", "PYTHONPATH")


def run_program(
    command: str, environment: Mapping[str, str], directory: Path, *arguments: str
) -> subprocess.CompletedProcess[str]:
    """Run ``heartbeat-stream COMMAND`` with these HEARTBEAT_ variables alone, in a directory."""
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    return subprocess.run(
        [sys.executable, "-m", "heartbeat_stream", command, *arguments],
        env={**inherited, "HOME": str(directory), "LC_ALL": "C.UTF-8", **environment},
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def lines_of(done: subprocess.CompletedProcess[str], level: str) -> list[str]:
    """The lines of ``check`` on a level (ok, warn, FAIL), without it."""
    found = [line.split(maxsplit=1) for line in done.stdout.splitlines()]
    return [text for word, text in found if word == level]
