"""What the demo shows while it runs, as text. Looks at nothing by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from heartbeat_stream.local.demo.baseline import WINDOW_MS
from heartbeat_stream.local.demo.figures import Figures
from heartbeat_stream.local.demo.screen import Line, Span, line

__all__ = ["Scene", "by_reason", "frame", "log_line", "saving", "seconds", "web_view"]

_LABEL = 16
_COUNT = 11


@dataclass(frozen=True)
class Scene:
    """All that is shown at one moment.

    phase: what is going on, in words. fleet: what sends how much, in words. rows: in the table.
    unread: records of the topic that the worker has not read. baseline: how many writes of a room
    in a window of 5 s there would have been. room: the key of a room, as an example.
    """

    phase: str
    fleet: str
    figures: Figures
    records_per_s: float
    rows_per_s: float
    rows: int
    unread: int
    baseline: int
    window_ms: int
    cooldown_ms: int
    url: str
    room: str


def frame(scene: Scene) -> list[Line]:
    """The live view: what matters stands in the first forty columns."""
    figures = scene.figures
    return [
        line(Span("heartbeat-stream demo", "bold"), f"  {scene.phase}"),
        line(Span(scene.fleet, "dim")),
        [],
        _row(
            "heartbeats in",
            figures.records,
            f"{scene.records_per_s:,.0f} a second, {scene.unread:,} unread",
        ),
        _row(
            "rows written",
            figures.rows_written,
            f"{scene.rows_per_s:,.0f} a second, {scene.rows:,} rooms in the table",
        ),
        _row("saving", saving(figures.rows_written, scene.baseline), _instead_of(scene)),
        [],
        _row("merged", figures.merged, "became the newest of their room"),
        _row("dropped", figures.dropped),
        _row("  stale", figures.stale, "repeated or late: their room knows a newer one"),
        _row("  combined", figures.combined, "a newer one of their room came with them"),
        _row("  dead letters", figures.broken, by_reason(figures.dead_letters)),
        [],
        _row("rooms pending", figures.pending, "have something to write"),
        _row(
            "  in cooldown",
            figures.cooling,
            f"were written less than {seconds(scene.cooldown_ms)} ago",
        ),
        _row(
            "  in window",
            figures.waiting,
            f"wait {seconds(scene.window_ms)} for what else comes",
        ),
        [],
        *web_view(scene.url, scene.room),
        line(Span("Ctrl-C ends early", "dim")),
    ]


def web_view(url: str, room: str) -> list[Line]:
    """Where to look for oneself."""
    return [
        line("web view   ", Span(f"{url}/metrics", "bold")),
        line("           ", Span(f"{url}/table/latest/{room}/", "bold")),
    ]


def log_line(scene: Scene) -> Line:
    """The same in one line, for where nothing can be drawn."""
    figures = scene.figures
    return line(
        f"{scene.phase}: "
        f"in {figures.records:,} ({scene.records_per_s:,.0f}/s), unread {scene.unread:,}, "
        f"merged {figures.merged:,}, stale {figures.stale:,}, combined {figures.combined:,}, "
        f"dead letters {figures.broken:,}, pending {figures.pending:,} "
        f"(in cooldown {figures.cooling:,}), "
        f"rows written {figures.rows_written:,} ({scene.rows_per_s:,.0f}/s), "
        f"saving {saving(figures.rows_written, scene.baseline)}"
    )


def _row(label: str, value: int | str, note: str = "") -> Line:
    count = value if isinstance(value, str) else f"{value:,}"
    return line(f"{label:{_LABEL}}", Span(f"{count:>{_COUNT}}", "bold"), Span(f"  {note}", "dim"))


def _instead_of(scene: Scene) -> str:
    if not scene.baseline:
        return ""
    return f"instead of {scene.baseline:,} rows: one a room and {seconds(WINDOW_MS)}"


def saving(rows: int, baseline: int) -> str:
    """The share of writes that were not needed; nothing as long as there is nothing to compare."""
    if not baseline or not rows:
        return "-"
    return f"{1 - rows / baseline:.1%}".replace("%", " %")


def by_reason(dead_letters: Mapping[str, int], space: str = " ") -> str:
    """The most frequent reason first, each with its count after the `space`."""
    ordered = sorted(dead_letters.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{reason}{space}{count:,}" for reason, count in ordered)


def seconds(milliseconds: int) -> str:
    """`5 s`, `0.25 s`."""
    return f"{milliseconds / 1000:g} s"
