"""The figures of a run beside their goals, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["GOALS", "Figure", "Goal", "as_json", "table"]


@dataclass(frozen=True)
class Goal:
    """What a figure is to reach: at least this, better that. ``most``: the smaller the better."""

    title: str
    unit: str
    at_least: float
    aim: float
    most: bool = False


GOALS = {
    "keyed": Goal("one worker, keyed source, to the ceiling", "", 0.5, 0.7),
    "unkeyed": Goal("the same, unkeyed source, to the ceiling", "", 0.2, 0.35),
    "rooms": Goal("1,000,000 rooms to 10,000 rooms", "", 0.7, 0.9),
    "market": Goal("market messages, three layers, to the ceiling", "", 0.25, 0.25),
    "quix": Goal("to Quix Streams with state", "times", 4, 6),
    "upsert": Goal("rows upserted, to COPY, batches of 5,000", "", 0.7, 0.9),
    "printing": Goal("message filter, arrival to print, p99", "s", 0.1, 0.1, most=True),
    "latency": Goal("due until in the database, p99", "s", 1.0, 0.3, most=True),
    "memory": Goal("resident memory per pending room", "bytes", 600, 300, most=True),
    "changelog": Goal("recovery of all rooms from the changelogs alone", "s", 30, 10, most=True),
    "files": Goal("recovery of all rooms with local files", "s", 5, 2, most=True),
    "stall": Goal("longest stall of the event loop under load", "s", 0.25, 0.05, most=True),
    "start": Goal("start to ready on an empty state", "s", 5, 2, most=True),
}


@dataclass(frozen=True)
class Figure:
    """One measured value of a goal, and what else is to be said of it."""

    goal: str
    value: float
    broker: str
    note: str = ""

    def reached(self, wanted: float) -> float:
        """How the value stands to what is wanted: 1 is just enough, more is better."""
        if GOALS[self.goal].most:
            return wanted / self.value if self.value > 0 else float("inf")
        return self.value / wanted

    @property
    def verdict(self) -> str:
        goal = GOALS[self.goal]
        if self.reached(goal.aim) >= 1:
            return "aim"
        return "yes" if self.reached(goal.at_least) >= 1 else "NO"


def shown(value: float, unit: str) -> str:
    """A value with as many digits as mean something."""
    text = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"
    return f"{text} {unit}".rstrip()


def table(figures: Sequence[Figure]) -> str:
    """A table for people: each figure, its goals, and how far it reaches (1.00 is just enough)."""
    head = ("what", "on", "measured", "at least", "reached", "aim", "reached", "met", "")
    rows = [head]
    for figure in figures:
        goal = GOALS[figure.goal]
        rows.append(
            (
                goal.title,
                figure.broker,
                shown(figure.value, goal.unit),
                shown(goal.at_least, goal.unit),
                f"{figure.reached(goal.at_least):.2f}",
                shown(goal.aim, goal.unit),
                f"{figure.reached(goal.aim):.2f}",
                figure.verdict,
                figure.note,
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if column in (0, 1, 7, 8) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    lines.insert(1, "-" * max(map(len, lines)))
    return "\n".join(lines)


def as_json(figures: Sequence[Figure]) -> list[dict[str, object]]:
    """The same for programs."""
    return [
        {
            "goal": figure.goal,
            "title": GOALS[figure.goal].title,
            "broker": figure.broker,
            "value": figure.value,
            "unit": GOALS[figure.goal].unit,
            "at_least": GOALS[figure.goal].at_least,
            "aim": GOALS[figure.goal].aim,
            "smaller_is_better": GOALS[figure.goal].most,
            "reached_at_least": figure.reached(GOALS[figure.goal].at_least),
            "reached_aim": figure.reached(GOALS[figure.goal].aim),
            "note": figure.note,
        }
        for figure in figures
    ]
