"""Two small charts in one SVG picture: throughput against rooms, and a histogram of latencies."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

from heartbeat_stream.bench.histogram import Bin

__all__ = ["chart"]

_WIDTH, _HEIGHT = 460, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 20, 50, 55
_COLOURS = ("#1b6ca8", "#c0392b", "#2e8b57", "#8e44ad")

Points = Sequence[tuple[float, float]]


def chart(throughput: Mapping[str, Points], latencies: Sequence[Bin], marks: Points) -> str:
    """An SVG document. A part without data says so.

    ``throughput``: by name, rooms and messages per second. ``latencies`` in milliseconds;
    ``marks``: quantiles to be shown in them, as share and milliseconds.
    """
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{2 * _WIDTH}" height="{_HEIGHT}" '
        f'viewBox="0 0 {2 * _WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{2 * _WIDTH}" height="{_HEIGHT}" fill="white"/>',
        *_lines(throughput),
        f'<g transform="translate({_WIDTH} 0)">',
        *_bars(latencies, marks),
        "</g></svg>",
    ]
    return "\n".join(parts) + "\n"


def _lines(series: Mapping[str, Points]) -> list[str]:
    parts = _frame("Throughput against rooms", "rooms", "messages/s")
    points = [point for line in series.values() for point in line]
    if not points:
        return [*parts, _text(_WIDTH / 2, _HEIGHT / 2, "not measured")]
    low = math.floor(math.log10(min(x for x, _ in points)))
    high = max(math.ceil(math.log10(max(x for x, _ in points))), low + 1)
    most = _ceiling(max(y for _, y in points))
    for power in range(low, high + 1):
        x = _across((power - low) / (high - low))
        parts += [_tick_below(x, f"{10**power:,}")]
    parts += _scale(most)
    for number, (name, line) in enumerate(series.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        places = [
            (_across((math.log10(x) - low) / (high - low)), _up(y / most)) for x, y in sorted(line)
        ]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
        x, y = _across(0) + 10, _TOP + 8 + 15 * number
        parts.append(f'<rect x="{x:.0f}" y="{y - 8:.0f}" width="10" height="10" fill="{colour}"/>')
        parts.append(_text(x + 15, y + 1, name, anchor="start"))
    return parts


def _bars(bins: Sequence[Bin], marks: Points) -> list[str]:
    parts = _frame("Due until in the database", "milliseconds", "writes")
    if not bins:
        return [*parts, _text(_WIDTH / 2, _HEIGHT / 2, "not measured")]
    low, high = bins[0].start, bins[-1].stop
    most = _ceiling(max(one.size for one in bins))
    parts += _scale(most)
    for one in bins:
        x, end = (_across((edge - low) / (high - low)) for edge in (one.start, one.stop))
        y = _up(one.size / most)
        parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(0.5, end - x - 1):.1f}" '
            f'height="{_up(0) - y:.1f}" fill="{_COLOURS[0]}"/>'
        )
    for step in range(5):
        value = low + (high - low) * step / 4
        parts.append(_tick_below(_across(step / 4), f"{value:,.0f}"))
    for number, (share, value) in enumerate(marks):
        x = _across((value - low) / (high - low))
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{_up(0)}" '
            f'stroke="{_COLOURS[1]}" stroke-dasharray="4 3"/>'
        )
        label = f"p{100 * share:g} {value:,.0f} ms"
        parts.append(_text(x - 4, _TOP + 12 + 14 * number, label, anchor="end"))
    return parts


def _frame(title: str, below: str, beside: str) -> list[str]:
    bottom = _up(0)
    return [
        _text(_WIDTH / 2, 22, title, size=15),
        _text((_across(0) + _across(1)) / 2, _HEIGHT - 14, below),
        _text(_across(0), _TOP - 10, beside, anchor="middle"),
        f'<path d="M{_across(0)} {_TOP}V{bottom}H{_across(1)}" fill="none" stroke="#444"/>',
    ]


def _scale(most: float) -> list[str]:
    parts = []
    for step in range(5):
        y = _up(step / 4)
        if step:
            parts.append(
                f'<line x1="{_across(0)}" x2="{_across(1)}" y1="{y:.1f}" y2="{y:.1f}" '
                'stroke="#ddd"/>'
            )
        parts.append(_text(_across(0) - 6, y + 4, f"{most * step / 4:,.0f}", anchor="end"))
    return parts


def _tick_below(x: float, label: str) -> str:
    return _text(x, _up(0) + 18, label)


def _across(share: float) -> float:
    return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)


def _up(share: float) -> float:
    return _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)


def _text(x: float, y: float, text: str, *, anchor: str = "middle", size: int = 12) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="#222">'
        f"{escape(text)}</text>"
    )


def _ceiling(value: float) -> float:
    """The next value that quarters well: 1, 2, 4 or 8 times a power of ten."""
    power = 10 ** math.floor(math.log10(value)) if value > 0 else 1.0
    return next(step * power for step in (1, 2, 4, 8, 10) if step * power >= value)
