"""How a recovery is done on the command line: plan, question, work."""

from __future__ import annotations

import argparse
import asyncio
import io
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from aiokafka.errors import TopicAuthorizationFailedError

from heartbeat_stream.commands import CommandError
from heartbeat_stream.commands.recovering import carry_out
from heartbeat_stream.recovery.errors import PartlyDone, RecoveryError
from heartbeat_stream.recovery.operation import Progress
from heartbeat_stream.settings import Settings
from heartbeat_stream.sinks.postgres_errors import SinkUnavailable


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Operation:
    """Notes what is asked of it, and may fail."""

    def __init__(self, error: Exception | None = None) -> None:
        self.calls: list[str] = []
        self._error = error

    async def plan(self, progress: Progress) -> Sequence[str]:
        self.calls.append("plan")
        return ["everything changes"]

    async def run(self, progress: Progress) -> Sequence[str]:
        self.calls.append("run")
        if self._error is not None:
            raise self._error
        return ["everything has changed"]


def arguments(*, dry_run: bool = False, yes: bool = False) -> argparse.Namespace:
    return argparse.Namespace(dry_run=dry_run, yes=yes)


def test_a_dry_run_says_what_would_happen_and_asks_nobody(
    capsys: pytest.CaptureFixture[str],
) -> None:
    operation = Operation()
    assert carry_out(operation, arguments(dry_run=True, yes=True), Settings()) == 0
    assert operation.calls == ["plan"]
    assert capsys.readouterr().out == (
        "everything changes\nnothing was changed: this was --dry-run\n"
    )


def test_what_was_done_is_said_though_something_is_left(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(CommandError, match="2 rows are left"):
        carry_out(
            Operation(PartlyDone("2 rows are left", ["5 rows went"])),
            arguments(yes=True),
            Settings(),
        )
    assert capsys.readouterr().out == "everything changes\n5 rows went\n"


def test_yes_skips_the_question(capsys: pytest.CaptureFixture[str]) -> None:
    operation = Operation()
    assert carry_out(operation, arguments(yes=True), Settings()) == 0
    assert operation.calls == ["plan", "run"]
    assert capsys.readouterr().out == "everything changes\neverything has changed\n"


@pytest.mark.parametrize("answer", ["yes\n", "YES \n", "y\n"])
def test_whoever_says_yes_gets_it(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    operation = Operation()
    assert carry_out(operation, arguments(), Settings()) == 0
    assert operation.calls == ["plan", "run"]


@pytest.mark.parametrize("answer", ["", "\n", "ye\n", "no\n", "yes please\n"])
def test_nobody_else_does(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    operation = Operation()
    with pytest.raises(CommandError, match="nothing was changed"):
        carry_out(operation, arguments(), Settings())
    assert operation.calls == ["plan"]


def test_where_nobody_can_be_asked_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("yes\n"))
    operation = Operation()
    with pytest.raises(CommandError, match="--yes"):
        carry_out(operation, arguments(), Settings())
    assert operation.calls == ["plan"]


class Signalled(Operation):
    """Is told to end by a signal, and has something to tidy up."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__()
        self._number = number

    async def run(self, progress: Progress) -> Sequence[str]:
        os.kill(os.getpid(), self._number)
        try:
            await asyncio.sleep(0.1)
        finally:
            self.calls.append("tidied up")
        return []


@contextmanager
def handled_by(number: signal.Signals, handler: Any) -> Iterator[None]:
    """Before the command begins."""
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_end_lets_it_tidy_up(number: signal.Signals) -> None:
    operation = Signalled(number)
    with (
        handled_by(number, lambda *_: None),  # or these tests would end where it is not minded
        pytest.raises(CommandError, match="interrupted"),
    ):
        carry_out(operation, arguments(yes=True), Settings())
    assert operation.calls == ["plan", "tidied up"]


def test_nohup_holds() -> None:
    with handled_by(signal.SIGHUP, signal.SIG_IGN):
        assert carry_out(Signalled(signal.SIGHUP), arguments(yes=True), Settings()) == 0


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (RecoveryError("stop them first"), "stop them first"),
        (
            SinkUnavailable("permission", "permission denied for table x", sqlstate="42501"),
            "the database does not allow it .*denied for table x.* GRANTs",
        ),
        (
            SinkUnavailable("undefined-table", "no relation x", sqlstate="42P01"),
            "the database cannot do it .*no relation x.*check",
        ),
        (SinkUnavailable("connection", "refused"), "start the database"),
        (
            SinkUnavailable("authentication", "no password", sqlstate="28P01"),
            "HEARTBEAT_DATABASE_URL",
        ),
        (TopicAuthorizationFailedError({"x"}), "the brokers refuse it: "),
        (TimeoutError(), "no Kafka broker answers at 127.0.0.1:1"),
    ],
)
def test_what_goes_wrong_is_one_line(error: Exception, line: str) -> None:
    with pytest.raises(CommandError, match=line) as raised:
        carry_out(Operation(error), arguments(yes=True), Settings(brokers=("127.0.0.1:1",)))
    assert "\n" not in str(raised.value)
