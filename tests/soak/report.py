"""The result of a soak as a page: what was done, what it needed, and what came of it."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from datetime import UTC, datetime

from tests.soak.recorder import Event, Recorder, Sample

__all__ = ["page"]


def page(title: str, command: str, chart: str, verdict: str, recorder: Recorder) -> str:
    """A Markdown document. chart: the picture's path as seen from the page."""
    most_behind = max((lag for _, lag in recorder.lags), default=0)
    lines = [
        "# A soak",
        "",
        "Steady load and a fault every minute, and at the end the verdict over all rows, all",
        "writes and all dead letters (`tests/soak/`). This page was written by the run itself:",
        "",
        f"    {command}",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, {platform.system()} on {platform.machine()}: {title}",
        "",
        f"**{verdict}**",
        "",
        f"![Memory, open files, threads and lag over time, with the faults behind them]({chart})",
        "",
        "## What the workers needed",
        "",
        *_needs(recorder.samples),
        "",
        f"The most records that were not committed: {most_behind:,.0f}.",
        "",
        f"## The {len(recorder.events)} faults",
        "",
        "| at | fault | lasted |",
        "| --- | --- | --- |",
        *map(_row, recorder.events),
        "",
    ]
    return "\n".join(lines)


def _row(event: Event) -> str:
    minutes, seconds = divmod(int(event.begins), 60)
    name = event.fault.replace("_", " ")
    return f"| {minutes}:{seconds:02} | {name} | {event.ends - event.begins:.0f} s |"


def _needs(samples: Sequence[Sample]) -> list[str]:
    """One line for each worker that lived for long enough to tell something."""
    by_worker: dict[str, list[Sample]] = {}
    for sample in samples:
        by_worker.setdefault(sample.worker, []).append(sample)
    lines = [
        "| worker | lived | memory, MiB: first, most, last | most open files | most threads |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, its in by_worker.items():
        rss = [one.rss for one in its]
        lines.append(
            f"| {name} | {its[-1].at - its[0].at:.0f} s "
            f"| {rss[0]:.0f}, {max(rss):.0f}, {rss[-1]:.0f} "
            f"| {max(one.files for one in its)} | {max(one.threads for one in its)} |"
        )
    return lines
