"""Printing lines to a file: rotation, trouble with the disk, and what is settled."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from heartbeat_stream.sinks.lines import FileTarget, LineSink
from tests.support.wait import wait_until_async


class Recorder:
    """A target that takes three bytes at a time, and may refuse."""

    name = "a recorder"

    def __init__(self) -> None:
        self.data = b""
        self.synced = b""
        self.refuses = False

    def write(self, data: bytes) -> int:
        if self.refuses:
            raise OSError(28, "No space left on device")
        self.data += data[:3]
        return len(data[:3])

    def sync(self) -> None:
        if self.refuses:
            raise OSError(28, "No space left on device")
        self.synced = self.data

    def close(self) -> None:
        pass


async def test_settled_means_written_and_safe() -> None:
    target = Recorder()
    sink = LineSink(target)
    sink.put([b"one", "二".encode(), b""])
    await asyncio.wait_for(sink.settled(), 10)
    assert target.synced == "one\n二\n\n".encode()
    await asyncio.wait_for(sink.settled(), 10)  # nothing more: at once
    await asyncio.wait_for(sink.room(), 10)
    sink.stop()


async def test_what_the_disk_refuses_is_tried_again() -> None:
    target = Recorder()
    sink = LineSink(target)
    target.refuses = True
    sink.put([b"a text"])
    settling = asyncio.create_task(sink.settled())
    await wait_until_async(lambda: sink.last_error is not None, what="it says what is wrong")
    assert "No space left on device" in (sink.last_error or "")
    assert not settling.done()
    target.refuses = False
    await asyncio.wait_for(settling, 10)
    assert target.synced == b"a text\n"
    assert sink.last_error is None
    sink.stop()


@pytest.mark.parametrize("count", [1, 3])
async def test_rotation_keeps_so_many_files_and_cuts_no_line(tmp_path: Path, count: int) -> None:
    path = tmp_path / "made for it" / "messages.log"
    sink = LineSink(FileTarget(path, 1_000, count))
    lines = [b"%04d " % number + b"x" * 94 for number in range(100)]
    for line in lines:
        sink.put([line])
        await asyncio.wait_for(sink.settled(), 10)
    sink.stop()
    files = sorted(path.parent.iterdir(), key=lambda one: one.name)
    assert len(files) == count
    assert all(one.stat().st_size <= 1_100 for one in files)
    kept = b"".join(one.read_bytes() for one in [*reversed(files[1:]), files[0]])
    assert kept.splitlines() == lines[-len(kept.splitlines()) :]
    assert len(kept.splitlines()) >= (count - 1) * 10


async def test_a_line_that_was_begun_before_a_crash_does_not_join_the_next(tmp_path: Path) -> None:
    path = tmp_path / "messages.log"
    path.write_bytes(b"whole\nhal")
    sink = LineSink(FileTarget(path, 1_000, 2))
    sink.put([b"next"])
    await asyncio.wait_for(sink.settled(), 10)
    sink.stop()
    assert path.read_bytes() == b"whole\nhal\nnext\n"


async def test_the_thread_goes_away(tmp_path: Path) -> None:
    target = FileTarget(tmp_path / "log", 1_000, 2)
    sink = LineSink(target)
    sink.put([b"x"])
    await asyncio.wait_for(sink.settled(), 10)
    descriptor = target._descriptor
    assert descriptor is not None
    sink.stop()
    await wait_until_async(lambda: target._descriptor is None, what="the file is closed")
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(descriptor)
