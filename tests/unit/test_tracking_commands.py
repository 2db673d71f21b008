"""`clean` and `selftest` on the command line: what the page tells to type can be typed."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path

import pytest

from heartbeat_stream import cli
from heartbeat_stream.commands import clean, selftest
from heartbeat_stream.settings import Settings

PAGE = (Path(__file__).parents[2] / "docs" / "tracking.md").read_text(encoding="utf-8")
CLEAN = ["clean", "--project", "shop", "--from", "2026-11-30", "--to", "2026-12-01"]


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[argparse.Namespace]:
    """What was understood of each command that a test types; none of them is run."""
    monkeypatch.chdir(tmp_path)
    seen: list[argparse.Namespace] = []

    def run(args: argparse.Namespace, settings: Settings) -> int:
        seen.append(args)
        return 0

    for module in (clean, selftest):
        monkeypatch.setattr(module, "run", run)
    return seen


def test_what_the_page_tells_to_type(typed: list[argparse.Namespace]) -> None:
    lines = re.findall(r"^heartbeat-stream (?:clean|selftest) .*", PAGE, re.MULTILINE)
    lines += re.findall(r"`(heartbeat-stream (?:clean|selftest) [^`]*)`", PAGE)
    for line in lines:
        assert cli.main(shlex.split(line, comments=True)[1:]) == 0, line
    assert {args.command for args in typed} == {"clean", "selftest"}


def test_times_are_read_as_those_of_replay(typed: list[argparse.Namespace]) -> None:
    assert cli.main(CLEAN) == 0
    assert (typed[-1].start, typed[-1].end) == (1_795_996_800_000, 1_796_083_200_000)
    assert cli.main([*CLEAN[:3], "--from", "2d", "--to", "1h"]) == 0
    assert abs(typed[-1].end - typed[-1].start - 47 * 3_600_000) < 60_000


@pytest.mark.parametrize(
    "words",
    [
        ["clean"],
        CLEAN[:-2],
        [*CLEAN[:1], *CLEAN[3:]],
        [*CLEAN[:-1], "soon"],
        [*CLEAN[:-1], "1796083200000"],
        [*CLEAN, "--project", ""],
        [*CLEAN, "--batch", "0"],
        [*CLEAN, "--tracking-window-ms", "1"],
        [*CLEAN, "--dry"],
        ["selftest"],
        ["selftest", "heartbeats"],
        ["selftest", "tracking", "--seconds", "-1"],
        ["selftest", "tracking", "--tracking-policy", "keep"],
    ],
)
def test_wrong_use_is_one_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    assert captured.err.startswith("heartbeat-stream")
