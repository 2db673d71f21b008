"""How a recovery is done on the command line: plan, question, work."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Sequence

import pytest
from aiokafka.errors import TopicAuthorizationFailedError

from heartbeat_stream.commands import CommandError
from heartbeat_stream.commands.recovering import carry_out
from heartbeat_stream.recovery.errors import RecoveryError
from heartbeat_stream.recovery.operation import Progress
from heartbeat_stream.settings import Settings


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


def test_yes_skips_the_question(capsys: pytest.CaptureFixture[str]) -> None:
    operation = Operation()
    assert carry_out(operation, arguments(yes=True), Settings()) == 0
    assert operation.calls == ["plan", "run"]
    assert capsys.readouterr().out == "everything changes\neverything has changed\n"


@pytest.mark.parametrize("answer", ["yes\n", "YES \n"])
def test_whoever_says_yes_gets_it(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    operation = Operation()
    assert carry_out(operation, arguments(), Settings()) == 0
    assert operation.calls == ["plan", "run"]


@pytest.mark.parametrize("answer", ["", "\n", "y\n", "no\n", "yes please\n"])
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


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (RecoveryError("stop them first"), "stop them first"),
        (TopicAuthorizationFailedError({"x"}), "the brokers refuse it: "),
        (TimeoutError(), "no Kafka broker answers at 127.0.0.1:1"),
    ],
)
def test_what_goes_wrong_is_one_line(error: Exception, line: str) -> None:
    with pytest.raises(CommandError, match=line) as raised:
        carry_out(Operation(error), arguments(yes=True), Settings(brokers=("127.0.0.1:1",)))
    assert "\n" not in str(raised.value)
