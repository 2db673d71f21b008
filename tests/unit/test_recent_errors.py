"""The last warnings that the page shows: few, short, without secrets, of the worker alone."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from heartbeat_stream.complaints import Complaints
from heartbeat_stream.recent_errors import RecentErrors

SECRET = "hunter2-and-more"


class Kept:
    def __init__(self) -> None:
        self.now = 1_000
        self.errors = RecentErrors([SECRET], lambda: self.now)
        self.log = logging.getLogger("heartbeat_stream.jobs.draining")


@pytest.fixture
def kept() -> Iterator[Kept]:
    made = Kept()
    logging.getLogger().addHandler(made.errors)
    yield made
    logging.getLogger().removeHandler(made.errors)


def test_warnings_and_errors_the_latest_first(kept: Kept) -> None:
    kept.log.info("nothing to see")
    kept.log.warning("the database is %s", "away")
    kept.now = 2_000
    kept.log.error("the disk is\nfull")
    said = [(one.at_ms, one.level, one.source, one.text) for one in kept.errors.lines()]
    assert said == [
        (2_000, "ERROR", "jobs.draining", "the disk is full"),
        (1_000, "WARNING", "jobs.draining", "the database is away"),
    ]


def test_a_kind_is_one_line_that_counts(kept: Kept) -> None:
    for number in range(3):
        kept.now += 1
        kept.log.warning("attempt %d failed", number)
    (line,) = kept.errors.lines()
    assert (line.text, line.times, line.at_ms) == ("attempt 2 failed", 3, 1_003)


def test_what_was_held_back_counts_too(kept: Kept) -> None:
    now = 0.0
    complaints = Complaints(kept.log, interval_s=10, now=lambda: now)
    for _ in range(5):
        complaints.warning("away since %d", 7)
    now = 11.0
    complaints.warning("away since %d", 8)
    (line,) = kept.errors.lines()
    assert (line.text, line.times) == ("away since 8", 6)


def test_no_secret_and_no_long_line(kept: Kept) -> None:
    kept.log.warning("cannot log in with %s at postgresql://me:%s@db", SECRET, "other")
    kept.log.error("x" * 100_000)
    long, short = kept.errors.lines()
    assert len(long.text) <= 300
    assert "hunter2" not in short.text
    assert "other" not in short.text


def test_a_traceback_is_not_kept(kept: Kept) -> None:
    try:
        raise ValueError("a payload")
    except ValueError:
        kept.log.exception("it failed")
    (line,) = kept.errors.lines()
    assert line.text == "it failed"


def test_the_kinds_are_bounded(kept: Kept) -> None:
    for number in range(1_000):
        kept.log.warning(f"kind {number}")
    assert len(kept.errors.lines()) < 100
    assert kept.errors.lines()[0].text == "kind 999"
