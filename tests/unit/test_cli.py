"""The command line: what is printed where, with which exit code, and what is not even imported."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from heartbeat_stream import __version__, cli
from heartbeat_stream.commands import Command, CommandError, load_commands
from heartbeat_stream.config import flags
from heartbeat_stream.settings import BY_FIELD, SPECS, Settings, SettingsError

COMMANDS = load_commands()
NAMES = [command.NAME for command in COMMANDS]


@pytest.fixture(autouse=True)
def _empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., int]], None]:
    """Puts a command `try` of the test's own in the place of all others."""

    def use(run: Callable[[argparse.Namespace, Settings], int]) -> None:
        fake: Any = SimpleNamespace(
            NAME="try",
            HELP="for the test",
            EXAMPLE="heartbeat-stream try",
            SETTINGS=("topic", "web_port", "kafka_ca_file", "kafka_password"),
            QUIET=True,
            add_arguments=lambda parser: None,
            run=run,
        )
        monkeypatch.setattr(cli, "load_commands", lambda: [fake])

    return use


def run_program(*arguments: str, **kwargs: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "heartbeat_stream", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **kwargs,
    )


# --- help


def test_every_command_of_the_list_is_there() -> None:
    assert {"worker", "demo", "stack", "init", "check", "simulate"} <= set(NAMES)
    assert len(set(NAMES)) == len(NAMES)


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    out = capsys.readouterr().out
    for command in COMMANDS:
        assert f"{command.NAME} " in out
        assert command.HELP in " ".join(out.split())


@pytest.mark.parametrize("command", COMMANDS, ids=NAMES)
def test_the_help_of_each_command_has_an_example(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([command.NAME, "--help"]) == 0
    out = capsys.readouterr().out
    assert f"Example:\n  {command.EXAMPLE.splitlines()[0]}" in out
    assert f"heartbeat-stream {command.NAME}" in command.EXAMPLE


@pytest.mark.parametrize("command", COMMANDS, ids=NAMES)
def test_the_example_of_each_command_can_be_typed(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[argparse.Namespace] = []

    def run(args: argparse.Namespace, settings: Settings) -> int:
        seen.append(args)
        return 0

    monkeypatch.setattr(command, "run", run)
    for line in command.EXAMPLE.splitlines():
        words = line.split("#")[0].split(" > ")[0].split()
        words = words[words.index("heartbeat-stream") + 1 :]
        assert cli.main(words) == 0
    assert seen


def test_all_settings_but_the_advanced_are_in_the_workers_help(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cli.main(["worker", "--help"])
    out = " ".join(capsys.readouterr().out.split())
    for spec in SPECS:
        assert (spec.flag in out) is not (spec.advanced or spec.secret)


def test_a_percent_sign_in_a_meaning_is_no_format() -> None:
    parser = argparse.ArgumentParser()
    spec = replace(BY_FIELD["topic"], meaning="100 % of %s.")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flags, "SPECS", (spec,))
        flags.add_setting_flags(parser, ["topic"])
    assert "100 % of %s. HEARTBEAT_TOPIC" in parser.format_help()


def test_a_password_has_no_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["worker", "--kafka-password", "x"]) == 2
    assert "unrecognized arguments: --kafka-password" in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"heartbeat-stream {__version__}\n"


# --- wrong use


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["wroker"],
        ["worker", "extra"],
        ["worker", "--no-such-flag"],
        ["worker", "--top", "x"],
        ["worker", "--partitions", "none"],
        ["worker", "--env-file", "/does/not/exist"],
        ["simulate", "--rate", "0"],
        ["simulate", "--rate", "nan"],
        ["simulate", "--hotels", "-1"],
        ["simulate", "--seconds", "soon"],
        ["stack", "--broker-port", "70000"],
    ],
)
def test_wrong_use_is_one_line_and_exit_code_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("heartbeat-stream")


@pytest.mark.parametrize("command", ["simulate", "demo"])
def test_a_fleet_with_too_many_rooms(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([command, "--hotels", "30000", "--rooms", "1000"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "at most 2,000,000: take fewer --hotels or --rooms" in captured.err


def test_a_wrong_variable_stops_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEARTBEAT_COOLDOWN_MS", "soon")
    assert cli.main(["check"]) == 2
    assert capsys.readouterr().err == (
        'heartbeat-stream check: HEARTBEAT_COOLDOWN_MS: "soon" is wrong: want a whole number of '
        "milliseconds, from 0 to 604800000\n"
    )


# --- how a command is run


def test_settings_come_from_flags_environment_and_file(
    command: Callable[[Callable[..., int]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Settings] = []

    def run(args: argparse.Namespace, settings: Settings) -> int:
        seen.append(settings)
        return 0

    command(run)
    Path(".env").write_text("HEARTBEAT_APP_ID=file\nHEARTBEAT_TOPIC=file\n")
    Path("other.env").write_text("HEARTBEAT_APP_ID=other\n")
    monkeypatch.setenv("HEARTBEAT_TABLE", "environment")
    assert cli.main(["try", "--topic", "flag", "--web-port=7000"]) == 0
    assert cli.main(["try", "--env-file", "other.env"]) == 0
    first, second = seen
    assert (first.app_id, first.topic, first.table) == ("file", "flag", "environment")
    assert (first.web_port, first.web_port_is_set) == (7000, True)
    assert (second.app_id, second.topic, second.web_port_is_set) == ("other", "heartbeat", False)


def test_an_advanced_setting_has_a_flag_that_the_help_leaves_out(
    command: Callable[[Callable[..., int]], None], capsys: pytest.CaptureFixture[str]
) -> None:
    command(lambda args, settings: 0)
    assert cli.main(["try", "--help"]) == 0
    assert "--kafka-ca-file" not in capsys.readouterr().out
    assert cli.main(["try", "--kafka-ca-file", "/ca.pem"]) == 2  # it needs TLS
    assert "HEARTBEAT_KAFKA_SECURITY_PROTOCOL" in capsys.readouterr().err


def test_a_misspelt_variable_is_a_warning(
    command: Callable[[Callable[..., int]], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command(lambda args, settings: 0)
    monkeypatch.setenv("HEARTBEAT_TOPICS", "x")
    assert cli.main(["try"]) == 0
    assert capsys.readouterr().err == (
        "heartbeat-stream try: warning: HEARTBEAT_TOPICS (in the environment) is no setting: "
        "did you mean HEARTBEAT_TOPIC?\n"
    )


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (CommandError("start the broker"), 1, "heartbeat-stream try: start the broker\n"),
        (SettingsError("HEARTBEAT_X: wrong"), 2, "heartbeat-stream try: HEARTBEAT_X: wrong\n"),
        (KeyboardInterrupt(), 1, "heartbeat-stream try: interrupted\n"),
    ],
)
def test_how_a_command_fails(
    error: BaseException,
    code: int,
    line: str,
    command: Callable[[Callable[..., int]], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(args: argparse.Namespace, settings: Settings) -> int:
        raise error

    command(fail)
    assert cli.main(["try"]) == code
    assert capsys.readouterr().err == line


def test_a_defect_keeps_its_traceback(command: Callable[[Callable[..., int]], None]) -> None:
    command(lambda args, settings: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        cli.main(["try"])


def test_the_exit_code_of_the_command_is_the_programs(
    command: Callable[[Callable[..., int]], None],
) -> None:
    command(lambda args, settings: 1)
    assert cli.main(["try"]) == 1


# --- as a process


def test_the_program_starts_as_a_module_and_passes_its_exit_code_on() -> None:
    done = run_program("worker", "--partitions", "0")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments", [["check", "--brokers", "127.0.0.1:1"], ["worker", "--help"], ["--version"]]
)
def test_a_reader_that_goes_away_is_no_traceback(arguments: list[str]) -> None:
    # Buffered, as a user has it: what is left in the buffer fails at the very end.
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "heartbeat_stream", *arguments],
            env=environ,
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(writer)
    assert done.returncode == 1
    assert done.stderr == ""


def test_no_command_is_slow_to_start_because_of_another() -> None:
    """The list of commands imports none of the libraries that they need for their work."""
    code = (
        "import sys; from heartbeat_stream.cli import main; main(['worker', '--help'])\n"
        "print(sorted({'faust', 'aiokafka', 'asyncpg', 'msgspec', 'rocksdict', 'aiohttp', 'uvloop',"
        " 'heartbeat_stream.local'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"
