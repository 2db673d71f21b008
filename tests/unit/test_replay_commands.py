"""What the help and docs/replay.md tell to type can be typed."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path

import pytest

from heartbeat_stream import cli
from heartbeat_stream.commands import replay, state
from heartbeat_stream.commands.subcommands import Subcommand
from heartbeat_stream.settings import Settings

DOCUMENT = (Path(__file__).parents[2] / "docs" / "replay.md").read_text(encoding="utf-8")
SUBCOMMANDS = [(module.NAME, one) for module in (replay, state) for one in module.SUBCOMMANDS]
NAMES = [f"{command} {one.name}" for command, one in SUBCOMMANDS]


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[argparse.Namespace]:
    """What was understood of each command that a test types; none of them is run."""
    monkeypatch.chdir(tmp_path)
    seen: list[argparse.Namespace] = []

    def run(args: argparse.Namespace, settings: Settings) -> int:
        seen.append(args)
        return 0

    for module in (replay, state):
        monkeypatch.setattr(module, "run_subcommand", run)
    return seen


@pytest.mark.parametrize(("command", "one"), SUBCOMMANDS, ids=NAMES)
def test_examples(command: str, one: Subcommand, typed: list[argparse.Namespace]) -> None:
    for line in one.example.splitlines():
        assert cli.main(shlex.split(line)[1:]) == 0
        assert (typed[-1].command, typed[-1].subcommand) == (command, one.name)


@pytest.mark.parametrize(("command", "one"), SUBCOMMANDS, ids=NAMES)
def test_help(command: str, one: Subcommand, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([command, one.name, "--help"]) == 0
    out = capsys.readouterr().out
    assert one.example.splitlines()[0] in out
    changes = ("--dry-run" in out, "--yes" in out)
    assert changes == (one.name not in ("get", "list", "export"),) * 2


def test_the_drills(typed: list[argparse.Namespace]) -> None:
    blocks = re.findall(r"^```\n(.*?)^```", DOCUMENT, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    lines += re.findall(r"`(heartbeat-stream (?:replay|state) [^`]*)`", DOCUMENT)
    commands = [shlex.split(line, comments=True) for line in lines]
    ours = [one[1:] for one in commands if one[:1] == ["heartbeat-stream"] and one[1] != "init"]
    for words in ours:
        numbered = ["7" if word == "HOTEL" else word for word in words]
        assert cli.main(numbered) == 0, words
    assert {f"{args.command} {args.subcommand}" for args in typed} == set(NAMES)


def test_its_links_lead_somewhere() -> None:
    headings = re.findall(r"^## (.+)$", DOCUMENT, re.MULTILINE)
    anchors = {heading.lower().replace(" ", "-") for heading in headings}
    assert set(re.findall(r"\]\(#([^)]+)\)", DOCUMENT)) <= anchors


def test_an_env_file_may_stand_on_either_side(
    typed: list[argparse.Namespace], tmp_path: Path
) -> None:
    path = tmp_path / "other.env"
    path.write_text("HEARTBEAT_APP_ID=other\n")
    for words in (
        ["replay", "rows", "--env-file", str(path)],
        ["replay", "--env-file", str(path), "rows"],
    ):
        assert cli.main(words) == 0
        assert typed[-1].env_file == str(path)


def test_reasons_are_named_as_they_are_typed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["replay", "dead-letters", "--reason", "foo"]) == 2
    said = capsys.readouterr().err
    assert "row-refused" in said
    assert "Reason" not in said


@pytest.mark.parametrize(
    "words",
    [
        ["replay"],
        ["replay", "row"],
        ["replay", "rows", "--rate", "0"],
        ["replay", "rows", "--dry"],
        ["replay", "source"],
        ["replay", "source", "--from", "soon"],
        ["replay", "dead-letters", "--reason", "bad"],
        ["replay", "dead-letters", "--since", "5"],
        ["state", "get", "7"],
        ["state", "get", "seven", "101"],
        ["state", "get", "32768", "101"],
        ["state", "export", "--format", "xml", "--output", "x"],
        ["state", "export", "--format", "csv"],
    ],
)
def test_wrong_use_is_one_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    assert captured.err.startswith("heartbeat-stream")
