"""The course of a soak as one SVG picture: a curve for each worker, faults as bands behind them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

from tests.soak.recorder import Event, Sample

__all__ = ["chart"]

_WIDTH, _PANEL, _LEFT, _GAP, _TOP = 1_000, 130, 80, 40, 50
_COLOURS = ("#1b6ca8", "#c0392b", "#2e8b57", "#8e44ad", "#b9770e", "#566573")

Points = Sequence[tuple[float, float]]


def chart(
    title: str, samples: Sequence[Sample], lags: Points, events: Sequence[Event], seconds: float
) -> str:
    """An SVG document."""
    panels: list[tuple[str, Mapping[str, Points]]] = [
        ("resident memory, MiB", _by_worker(samples, "rss")),
        ("open files", _by_worker(samples, "files")),
        ("threads", _by_worker(samples, "threads")),
        ("records not committed", {"lag": lags}),
    ]
    height = _TOP + len(panels) * (_PANEL + _GAP) + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'width="{_WIDTH}" height="{height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        f'<text x="{_LEFT}" y="24" font-size="14">{escape(title)}</text>',
    ]
    for number, (name, curves) in enumerate(panels):
        parts += _panel(name, curves, events, seconds, _TOP + number * (_PANEL + _GAP))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _by_worker(samples: Sequence[Sample], figure: str) -> Mapping[str, Points]:
    curves: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for sample in samples:
        curves[sample.worker].append((sample.at, float(getattr(sample, figure))))
    return curves


def _panel(
    name: str, curves: Mapping[str, Points], events: Sequence[Event], seconds: float, top: float
) -> list[str]:
    most = max((value for curve in curves.values() for _, value in curve), default=0) * 1.1 or 1.0
    wide = _WIDTH - _LEFT - 20

    def x(at: float) -> float:
        return _LEFT + wide * min(at / seconds, 1.0)

    def y(value: float) -> float:
        return top + _PANEL * (1 - value / most)

    parts = [f'<text x="{_LEFT}" y="{top - 6}">{escape(name)}</text>']
    for event in events:
        begins, ends = x(event.begins), max(x(event.ends), x(event.begins) + 1)
        parts.append(
            f'<rect x="{begins:.1f}" y="{top}" width="{ends - begins:.1f}" height="{_PANEL}" '
            f'fill="#f5e6c8"><title>{escape(event.fault)}</title></rect>'
        )
    parts.append(
        f'<rect x="{_LEFT}" y="{top}" width="{wide}" height="{_PANEL}" fill="none" stroke="#999"/>'
    )
    for part in (0.0, 0.5, 1.0):
        value = most / 1.1 * part
        parts.append(
            f'<text x="{_LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:,.0f}</text>'
        )
    for minute in range(0, int(seconds // 60) + 1, max(1, int(seconds // 600))):
        parts.append(
            f'<text x="{x(minute * 60):.1f}" y="{top + _PANEL + 14}" text-anchor="middle">'
            f"{minute} min</text>"
        )
    for number, curve in enumerate(curves.values()):
        path = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in curve)
        colour = _COLOURS[number % len(_COLOURS)]
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}"/>')
    return parts
