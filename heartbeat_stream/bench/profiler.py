"""Where a worker's time goes: py-spy beside it, and a list of the functions it was seen in.

Only who holds the interpreter's lock is looked at. A worker has two busy threads (Faust fetches in
one of its own), of which one always waits for the other: waiting is no work.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from heartbeat_stream.bench.worker_process import BenchError

__all__ = ["Profile", "top_of"]

_RATE = 500


class Profile:
    """Records into a file `NAME.raw` of a directory, a line per stack with its count."""

    def __init__(self, program: str, path: Path) -> None:
        self._program = program
        self.path = path

    @classmethod
    def find(cls, path: Path) -> Profile:
        """With py-spy beside this Python or on the path. Raises BenchError where there is none."""
        beside = Path(sys.executable).with_name("py-spy")
        program = str(beside) if beside.exists() else shutil.which("py-spy")
        if program is None:
            raise BenchError("--profile needs py-spy: pip install py-spy")
        return cls(program, path)

    @contextmanager
    def of(self, pid: int) -> Iterator[None]:
        """Look at a process for as long as the body runs."""
        command = [self._program, "record", "--pid", str(pid), "--gil", "--threads"]
        command += ["--format", "raw", "--output", str(self.path)]
        command += ["--rate", str(_RATE), "--duration", "600"]
        spy = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield
        finally:
            spy.send_signal(signal.SIGINT)
            spy.wait(30)


def top_of(path: Path) -> list[tuple[float, float, str]]:
    """Of each thread and function: its share of all samples by itself, and with what it calls."""
    own: Counter[str] = Counter()
    below: Counter[str] = Counter()
    total = 0
    for line in path.read_text().splitlines():
        stack, _, count = line.rpartition(" ")
        head, *frames = stack.split(";")
        thread = head.rpartition(": ")[2]
        functions = [f"{thread} {frame.rpartition(':')[0] or frame}" for frame in frames]
        total += int(count)
        for function in functions[-1:]:
            own[function] += int(count)
        for function in {*functions, thread}:
            below[function] += int(count)
    return [(own[name] / total, below[name] / total, name) for name in below]
