"""What the demo says at its end, as text. Looks at nothing by itself."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field

from heartbeat_stream.core.heartbeat import Heartbeat
from heartbeat_stream.local.demo.baseline import WINDOW_MS
from heartbeat_stream.local.demo.comparison import Comparison
from heartbeat_stream.local.demo.figures import Figures
from heartbeat_stream.local.demo.screen import Line, Span, line, text_width
from heartbeat_stream.local.demo.view import by_reason, saving, seconds

__all__ = ["Outcome", "summary"]

_LABEL = 16
_COUNT = 11
_NOTE = _LABEL + _COUNT + 2
_NOTE_MIN = 20
_COLUMNS = ("hotel_id", "room_id", "device_id", "ts_ms", "status")


@dataclass
class Outcome:
    """What came of it.

    rooms: rows in the table. comparison: None where the worker had not read everything yet.
    no_lag_after_s: from the last heartbeat until all offsets were committed; None if not seen.
    problems: a line for everything that is not as it must be.
    """

    seconds: float
    fleet: str
    figures: Figures
    baseline: int
    rooms: int
    comparison: Comparison | None
    no_lag_after_s: float | None
    sample: Sequence[Heartbeat]
    window_ms: int
    problems: list[str] = field(default_factory=list)


def summary(outcome: Outcome, columns: int) -> list[Line]:
    """All that there is to say; notes are broken at so many columns."""
    figures = outcome.figures
    rows: list[tuple[str, str, str]] = [
        (
            "heartbeats in",
            f"{figures.records:,}",
            _how_fast(outcome),
        ),
        ("dropped", f"{figures.dropped:,}", ""),
        ("  stale", f"{figures.stale:,}", "repeated or late: their room knew a newer one"),
        ("  combined", f"{figures.combined:,}", "a newer one of their room came with them"),
        ("  dead letters", f"{figures.broken:,}", by_reason(figures.dead_letters, "\xa0")),
        ("merged", f"{figures.merged:,}", "became the newest of their room"),
        (
            "rows written",
            f"{figures.rows_written:,}",
            f"of {outcome.rooms:,} rooms" + _merged_per_row(figures),
        ),
        *_saving(outcome),
        *_compared(outcome),
    ]
    lines: list[Line] = [[], line(Span(outcome.fleet, "dim")), []]
    for label, count, note in rows:
        lines += _row(label, count, note, columns)
    if outcome.sample:
        lines += [[], *_table(outcome.sample)]
    return lines


def _how_fast(outcome: Outcome) -> str:
    per_second = outcome.figures.records / max(outcome.seconds, 0.1)
    said = f"in {outcome.seconds:.1f} s, {per_second:,.0f} a second"
    if outcome.no_lag_after_s is None:
        return said
    return f"{said}; lag 0 within {outcome.no_lag_after_s:.1f} s of the last one"


def _merged_per_row(figures: Figures) -> str:
    if not figures.rows_written:
        return ""
    return f"; {figures.merged / figures.rows_written:.1f} merged heartbeats for each"


def _saving(outcome: Outcome) -> list[tuple[str, str, str]]:
    written, pending = outcome.figures.rows_written, outcome.figures.pending
    rows = [
        (
            "saving",
            saving(written, outcome.baseline),
            f"{written:,} rows instead of {outcome.baseline:,}: one for each room and "
            f"{seconds(WINDOW_MS)} in which a heartbeat of it came",
        )
    ]
    if pending and written:
        rows.append(
            (
                "",
                saving(written + pending, outcome.baseline),
                f"once the {pending:,} pending rooms are written, too",
            )
        )
    return rows


def _compared(outcome: Outcome) -> list[tuple[str, str, str]]:
    comparison = outcome.comparison
    if comparison is None:
        return [("compared", "-", "not everything that was sent had been read yet")]
    return [
        ("compared", f"{comparison.rooms:,}", "rows, with the newest heartbeat of each room"),
        ("  equal", f"{comparison.equal:,}", ""),
        ("  older", f"{comparison.behind:,}", _why_older(outcome) if comparison.behind else ""),
        ("  wrong", f"{len(comparison.wrong):,}", ""),
    ]


def _why_older(outcome: Outcome) -> str:
    figures = outcome.figures
    reasons = f"pending by rule: {figures.cooling:,} in their cooldown"
    others = figures.pending - figures.cooling
    if others:
        reasons += f", {others:,} in their window of {seconds(outcome.window_ms)}"
    return reasons


def _row(label: str, count: str, note: str, columns: int) -> list[Line]:
    """The note beside the count, or below it where there is no room for it."""
    style = "red" if label == "  wrong" and count != "0" else "bold"
    head = line(f"{label:{_LABEL}}", Span(f"{count:>{_COUNT}}", style))
    beside = columns - 1 - _NOTE >= _NOTE_MIN
    indent = " " * (_NOTE if beside else 4)
    # A no-break space keeps a reason and its count together.
    notes = [
        text.replace("\xa0", " ")
        for text in textwrap.wrap(
            note, max(columns - 1 - len(indent), _NOTE_MIN), break_on_hyphens=False
        )
    ]
    if beside and notes:
        head = line(*head, Span(f"  {notes.pop(0)}", "dim"))
    return [head, *(line(Span(indent + more, "dim")) for more in notes)]


def _table(rows: Sequence[Heartbeat]) -> list[Line]:
    """Some rows, as the table has them: numbers to the right, NULL as nothing."""
    cells = [
        [str(row.hotel_id), row.room_id, row.device_id or "", str(row.ts_ms), _status(row)]
        for row in rows
    ]
    widths = [max(map(text_width, column)) for column in zip(_COLUMNS, *cells, strict=True)]
    lines = []
    for cell, style in [(list(_COLUMNS), "dim"), *((cell, "") for cell in cells)]:
        padded = [
            " " * (width - text_width(text)) + text
            if name in ("hotel_id", "ts_ms", "status")
            else text + " " * (width - text_width(text))
            for name, text, width in zip(_COLUMNS, cell, widths, strict=True)
        ]
        lines.append(line(Span("  ".join(padded).rstrip(), style)))
    return lines


def _status(row: Heartbeat) -> str:
    return "" if row.status is None else str(row.status)
