"""The demo as a user runs it: what it says, how it ends, and that it leaves nothing behind.

With a window and a cooldown of their own, short enough for a room to be written twice.
"""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from heartbeat_stream.local.process import children_of
from tests.support.wait import process_runs, wait_until

# A worker has joined its group after 3 s; the rest is for a machine with better to do.
START_SECONDS = 90.0
END_SECONDS = 60.0
SMALL = ("--hotels", "3", "--rooms", "40", "--rate", "400")
ROOMS = 3 * 40
QUICK = ("--buffer-window-ms", "500", "--cooldown-ms", "3000", "--checkpoint-ms", "500")


class Demo:
    """A demo in a process of its own, on a terminal or with its output in a file."""

    def __init__(self, directory: Path, arguments: Sequence[str], terminal: bool) -> None:
        self._file = directory / "output"
        self._master: int | None = None
        output: int
        if terminal:
            self._master, output = pty.openpty()
        else:
            output = os.open(self._file, os.O_WRONLY | os.O_CREAT)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "heartbeat_stream", "demo", *SMALL, *arguments],
            cwd=directory,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "40"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        os.close(output)
        self._seen = b""
        self._family: set[int] = set()

    @property
    def output(self) -> str:
        """Everything so far, standard error included."""
        if self._master is None:
            return self._file.read_text(encoding="utf-8")
        while select.select([self._master], [], [], 0)[0]:
            try:
                read = os.read(self._master, 65_536)
            except OSError:  # nobody has the other end any more
                break
            if not read:
                break
            self._seen += read
        return self._seen.decode(errors="replace").replace("\r\n", "\n")

    def until(self, pattern: str, seconds: float = START_SECONDS) -> None:
        """Wait until its output holds this."""

        def said() -> bool:
            self._meet_family()
            assert self._process.poll() is None, f"it has ended:\n{self.output}"
            return re.search(pattern, self.output) is not None

        wait_until(said, seconds, what=f"{pattern} in {self.output[-2000:]}", every=0.1)

    def _meet_family(self) -> None:
        for child in children_of(self._process.pid):
            self._family |= {child, *children_of(child)}

    def member(self, name: str) -> int:
        """The process that it has started whose arguments hold this."""
        for pid in filter(process_runs, self._family):
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            if name in arguments and "supervisor.py" not in arguments:
                return pid
        raise AssertionError(f"no {name} among {self._family}")

    def send(self, signum: signal.Signals) -> None:
        self._process.send_signal(signum)

    def end(self, seconds: float = START_SECONDS + END_SECONDS) -> int:
        """Wait for its end, and for that of all that it has started; its exit code."""
        deadline = time.monotonic() + seconds
        while self._process.poll() is None and time.monotonic() < deadline:
            self._meet_family()
            _ = self.output  # a terminal that nobody reads would hold it up
            time.sleep(0.05)
        code = self._process.wait(1.0)
        wait_until(lambda: not any(map(process_runs, self._family)), what="no process is left")
        wait_until(lambda: not self._directory().exists(), what="no file is left")
        return code

    def _directory(self) -> Path:
        found = re.search(r"log in (\S+)/worker\.log", self.output)
        return Path(found[1]) if found else Path("/nowhere")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        if self._master is not None:
            os.close(self._master)


Start = Callable[..., Demo]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    demos: list[Demo] = []

    def start(*arguments: str, terminal: bool = False) -> Demo:
        demos.append(Demo(tmp_path, arguments, terminal))
        return demos[-1]

    yield start
    for demo in demos:
        demo.close()


class Pair(NamedTuple):
    """What two demos said that ran at the same time, both to their end."""

    short: str  #: with a cooldown short enough for everything to be written in the end
    long: str  #: with one that nobody waits for


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    directories = [tmp_path_factory.mktemp(name) for name in ("short", "long")]
    short = Demo(directories[0], ("--seconds", "5", *QUICK), False)
    long = Demo(directories[1], ("--seconds", "5", *QUICK, "--cooldown-ms", "60000"), False)
    try:
        assert (short.end(), long.end()) == (0, 0), short.output + long.output
        yield Pair(short.output, long.output)
    finally:
        short.close()
        long.close()


def number(label: str, text: str) -> int:
    """The figure behind this label of the summary."""
    found = re.search(rf"^ *{label} +([\d,]+)(  |$)", text, re.MULTILINE)
    assert found, f"no {label} in:\n{text}"
    return int(found[1].replace(",", ""))


def test_the_whole_pipeline_is_shown_and_judged(said: Pair) -> None:
    text = said.short
    assert "created  table room_status_moment_g5" in text
    assert re.search(r"^\d of 5 s: in [\d,]+ \(", text, re.MULTILINE), "a line now and then"

    assert number("heartbeats in", text) == 2_000
    assert number("heartbeats in", text) == number("dropped", text) + number("merged", text)
    assert number("dropped", text) == sum(
        number(reason, text) for reason in ("stale", "combined", "dead letters")
    )
    assert re.search(r"dead letters +\d+  [a-z0-9-]+ \d", text)
    # Written after 0.5 s, 3.5 s and 6.5 s, where something newer had come by then.
    assert 2 * ROOMS <= number("rows written", text) <= 3 * ROOMS
    assert re.search(r"saving +-?\d+\.\d %  \d+ rows instead of \d+", text)
    assert re.search(r"lag 0 within \d+\.\d s of the last one", text)
    assert number("compared", text) == number("equal", text) == ROOMS
    assert (number("older", text), number("wrong", text)) == (0, 0)
    assert re.search(r"^ +100\d  大会议室 +dev-100\d-\d+-\d +\d{13} +\d$", text, re.MULTILINE)


def test_rooms_in_their_cooldown_are_older_by_rule(said: Pair) -> None:
    text = said.long
    assert number("rows written", text) == number("compared", text) == ROOMS
    older = number("older", text)
    assert older > ROOMS / 2
    assert f"pending by rule: {older} in their cooldown" in text
    assert number("wrong", text) == 0


def test_two_demos_at_once_have_a_web_view_each(said: Pair) -> None:
    ports = [re.findall(r"http://127\.0\.0\.1:(\d+)/metrics", text) for text in said]
    assert [len(one) for one in ports] == [1, 1]
    assert ports[0] != ports[1]


def test_a_terminal_shows_it_in_place_until_an_interrupt(start: Start) -> None:
    demo = start("--seconds", "600", *QUICK, terminal=True)
    demo.until(r"heartbeats in +\x1b\[1m +[1-9]")
    demo.until(r"rows written +\x1b\[1m +[1-9]")
    assert "\x1b[K" in demo.output
    assert "Ctrl-C ends early" in demo.output
    demo.send(signal.SIGINT)
    assert demo.end(END_SECONDS) == 0
    summary = re.sub(r"\x1b\[\d*[mKJA]", "", demo.output.rpartition("ending     the worker")[2])
    assert number("heartbeats in", summary) == number("dropped", summary) + number(
        "merged", summary
    )
    assert number("compared", summary) == number("equal", summary) + number("older", summary)
    assert number("wrong", summary) == 0


@pytest.mark.parametrize("said", ["starting   a broker", "starting   a worker"])
def test_an_interrupt_before_anything_was_sent(start: Start, said: str) -> None:
    demo = start("--seconds", "600")
    demo.until(said)
    demo.send(signal.SIGTERM)
    assert demo.end(END_SECONDS) == 0
    assert demo.output.endswith("ended before the first heartbeat was sent\n")


def test_everything_ends_with_a_demo_that_is_killed(start: Start) -> None:
    demo = start("--seconds", "600")
    demo.until("web view")
    demo.send(signal.SIGKILL)
    assert demo.end(END_SECONDS) == -signal.SIGKILL


def test_a_worker_that_fails_fails_the_demo_with_one_line(start: Start) -> None:
    demo = start("--seconds", "600")
    demo.until("web view")
    os.kill(demo.member("heartbeat_stream worker"), signal.SIGKILL)
    assert demo.end(END_SECONDS) == 1
    last = demo.output.splitlines()[-1]
    assert last.startswith("heartbeat-stream demo: the worker has ended by itself with code 137")
    assert "Traceback" not in demo.output


def test_a_web_port_that_was_asked_for_must_be_free(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        demo = start("--seconds", "600", "--web-port", str(port))
        assert demo.end() == 1
    assert f"HEARTBEAT_WEB_PORT={port}: cannot listen" in demo.output.splitlines()[-1]
