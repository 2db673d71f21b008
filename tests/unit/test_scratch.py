"""Where commands put tables together, and what becomes of it when they are killed.

What else is told of temporary directories: test_stack.py.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from heartbeat_stream.recovery.errors import RecoveryError
from heartbeat_stream.recovery.scratch import scratch_directory

HOLDS_ONE = """
import sys
from heartbeat_stream.recovery.scratch import scratch_directory
with scratch_directory() as directory:
    (directory / "table").write_text("rows")
    print(directory, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def test_it_is_there_for_the_time_of_the_block(temporary: Path) -> None:
    with scratch_directory() as directory:
        assert directory.parent == temporary
        (directory / "table").write_text("rows")
    assert list(temporary.iterdir()) == []


def test_one_whose_command_was_killed_goes_with_the_next_and_one_in_use_stays(
    temporary: Path,
) -> None:
    command = [sys.executable, "-c", HOLDS_ONE]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        held = Path(other.stdout.readline().strip())
        assert held.parent == temporary
        with scratch_directory() as mine:
            assert set(temporary.iterdir()) == {held, mine}, "somebody works in it"
        other.kill()
        other.wait()
    assert held.exists()
    with scratch_directory() as mine:
        assert list(temporary.iterdir()) == [mine]


def test_a_place_that_takes_none_is_said(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(temporary / "nowhere"))
    with pytest.raises(RecoveryError, match="TMPDIR"), scratch_directory():
        pass
