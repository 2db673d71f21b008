"""Whether all is well, in words: what an operator is to read first."""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from heartbeat_stream.history import INTERVAL_MS, Sample
from heartbeat_stream.web.summary import Summary

__all__ = ["Level", "Point", "Verdict", "judge"]

#: As in observability/alerts.yaml, whose alerts wait for longer.
_LAG_S: Final = 60.0
_FETCH_AGE_S: Final = 60.0
_DUE_S: Final = 60.0
#: The last minute is what "now" means.
_RECENT: Final = 60_000 // INTERVAL_MS


class Level(StrEnum):
    """How well it goes."""

    WELL = "well"
    WATCH = "watch"  #: it passes by itself, or should be looked at in the morning
    TROUBLE = "trouble"  #: somebody has to do something now


class Point(msgspec.Struct):
    """One thing that is not as it should be."""

    level: Level
    text: str


class Verdict(msgspec.Struct):
    """The worst of all points as a level, a sentence about it, and the points, the worst first."""

    level: Level
    text: str
    points: list[Point]


def judge(
    summaries: Sequence[Summary], unreachable: Mapping[str, str], history: Sequence[Sample]
) -> Verdict:
    """Judge the workers that have answered, and those that have not, with the reason of each."""
    points = [Point(Level.TROUBLE, why) for why in unreachable.values()]
    for summary in summaries:
        points += _of_worker(summary)
    points += _of_partitions(summaries, bool(unreachable))
    points += _of_refused(history)
    points.sort(key=lambda point: point.level is not Level.TROUBLE)
    if points:
        more = len(points) - 1
        text = points[0].text + (f" (and {more} more)" if more else "")
        return Verdict(points[0].level, text, points)
    return Verdict(Level.WELL, f"All is well. {_numbers(summaries, history)}", [])


def _of_worker(one: Summary) -> Iterator[Point]:
    url = one.url
    if not one.live:
        yield Point(Level.TROUBLE, f"{url} cannot go on: restart it")
    elif one.waiting_for is not None:
        yield Point(Level.WATCH, f"{url} is starting and waits for {one.waiting_for}")
    elif not one.ready:
        what = "recovers its partitions" if not one.recovered else "is not ready"
        yield Point(Level.WATCH, f"{url} {what}")
    if one.database_error is not None:
        yield Point(
            Level.TROUBLE,
            f"The database takes no rows from {url}: rooms stay pending, and nothing is lost",
        )
    if one.session_lapsed:
        yield Point(Level.TROUBLE, f"{url} does not hear from the group's coordinator, and waits")
    if one.fetch_age_s is not None and one.fetch_age_s > _FETCH_AGE_S:
        yield Point(Level.TROUBLE, f"No broker has answered {url} for {_duration(one.fetch_age_s)}")
    if one.checkpoint_error is not None:
        yield Point(Level.TROUBLE, f"{url} cannot make its state durable, and tries again")
    behind = max((lag.seconds for lag in one.lag), default=0.0)
    if behind > _LAG_S:
        yield Point(Level.WATCH, f"{url} is {_duration(behind)} behind the fleet")
    if one.database_error is None and _has_long_been_due(one.history):
        yield Point(Level.WATCH, f"Rooms are due at {url} for over a minute: a slow database?")


def _has_long_been_due(history: Sequence[Sample]) -> bool:
    """Whether there were due rooms at the end of each interval of a minute, and few were written
    compared with them: under load there always are some, which are new each time."""
    recent = history[-_RECENT:]
    return len(recent) == _RECENT and all(one.due > 2 * one.rows for one in recent)


def _of_partitions(summaries: Sequence[Summary], incomplete: bool) -> Iterator[Point]:
    total = max((one.partitions_total or 0 for one in summaries), default=0)
    owned = {partition for one in summaries for partition in one.partitions}
    missing = total - len(owned)
    if total and missing and not incomplete:
        recovering = any(not one.recovered for one in summaries)
        level = Level.WATCH if recovering else Level.TROUBLE
        yield Point(level, f"{missing} of {total} partitions are nobody's: their rooms wait")


def _of_refused(history: Sequence[Sample]) -> Iterator[Point]:
    """Rows that the database has refused for what they are, in all of the history."""
    refused = round(sum(one.refused for one in history))
    if refused:
        rows, rooms = (
            ("1 row", "its room is") if refused == 1 else (f"{refused:,} rows", "rooms are")
        )
        lately = _duration(len(history) * INTERVAL_MS / 1000)
        yield Point(
            Level.WATCH,
            f"The database has refused {rows} in the last {lately}: {rooms} not up to date there "
            "until the next heartbeat, see the dead letters",
        )


def _numbers(summaries: Sequence[Summary], history: Sequence[Sample]) -> str:
    recent = history[-_RECENT:]
    workers = "1 worker" if len(summaries) == 1 else f"{len(summaries)} workers"
    if not recent:
        return f"{workers}."  # just started, or without the job heartbeats
    records = sum(one.records for one in recent)
    rows = sum(one.rows for one in recent)
    rate = records * 1000 / (len(recent) * INTERVAL_MS)
    if not records:
        return f"{workers}; no heartbeat has come in for {_duration(len(recent) * 5)}."
    saved = f"{100 * max(0.0, 1 - rows / records):.1f}\N{NO-BREAK SPACE}%"
    return f"{workers}, {rate:,.0f} heartbeats a second, {saved} of the writes saved."


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h"
