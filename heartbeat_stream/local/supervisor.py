"""Runs one server, and ends it when the process that wanted it is gone, however that ended.

A script, run by `process.py` with only the standard library; never imported. Between the two:

- argument 1 is the order, as JSON: see `Order` in `process.py`;
- on standard output goes one line of JSON, `{"pid": N}` or `{"error": "..."}`;
- on standard input come lines `signal N` for the server. Its end of file means that the parent is
  gone, since nobody else holds the other end: then the server is ended, and the directories that
  the order names are removed.

The exit code is the server's, or 128 and the signal that ended it.

Why a process of its own: the kernel's parent-death signal fires when the *thread* that forked
ends, which in a program with a thread pool is any moment; it does not exist on macOS; and it
cannot remove files. This process has one thread, so the signal is right for the second half: a
server whose supervisor is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

PR_SET_PDEATHSIG = 1
# The parent may also be gone while a forked copy of it still holds the pipe.
PARENT_CHECK_SECONDS = 1.0

end_asked = False


def on_signal(signum: int, _frame: FrameType | None) -> None:
    global end_asked
    if signum != signal.SIGCHLD:
        end_asked = True


def in_child(uid: int | None, death_signal: int) -> Callable[[], None]:
    """What the fork does before it becomes the server: lose privileges, and die with us."""
    supervisor = os.getpid()
    prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None

    def prepare() -> None:
        if uid is not None:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
        if prctl is not None:
            # After setuid: a change of user clears it.
            prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
            if os.getppid() != supervisor:  # died before the call: no signal will come
                os._exit(1)

    return prepare


def start(order: dict[str, Any]) -> subprocess.Popen[bytes]:
    with Path(order["log"]).open("ab") as log:
        return subprocess.Popen(
            order["command"],
            cwd=order["directory"],
            env=order["environment"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=in_child(order["uid"], order["end_signal"]),
        )


def end(server: subprocess.Popen[bytes], end_signal: int, grace_seconds: float) -> None:
    server.send_signal(end_signal)
    server.send_signal(signal.SIGCONT)  # a frozen one would not hear it
    try:
        server.wait(grace_seconds)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def watch(server: subprocess.Popen[bytes], parent: int, wake: int) -> bool:
    """Pass signals on until the server has ended (True) or has to be ended (False)."""
    pending = b""
    while server.poll() is None:
        readable, _, _ = select.select([0, wake], [], [], PARENT_CHECK_SECONDS)
        if wake in readable:
            os.read(wake, 4096)
        if 0 in readable:
            received = os.read(0, 4096)
            if not received:
                return False
            *lines, pending = (pending + received).split(b"\n")
            for line in lines:
                server.send_signal(int(line.removeprefix(b"signal ")))
        if end_asked or os.getppid() != parent:
            return False
    return True


def report(what: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def main() -> int:
    order = json.loads(sys.argv[1])
    wake, wake_writer = os.pipe()
    os.set_blocking(wake_writer, False)
    signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
    for signum in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, on_signal)
    try:
        server = start(order)
    except (OSError, subprocess.SubprocessError) as error:
        report({"error": str(error)})
        return 127
    with contextlib.suppress(OSError):  # the parent is gone already: watch() sees that too
        report({"pid": server.pid})
    if not watch(server, order["parent"], wake):
        end(server, order["end_signal"], order["grace_seconds"])
        for directory in order["remove"]:
            shutil.rmtree(directory, ignore_errors=True)
    code = server.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
