"""Quantiles and histograms of latencies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Bin", "histogram", "quantile"]


class Bin(NamedTuple):
    """So many values are at least ``start`` and below ``stop``."""

    start: float
    stop: float
    size: int


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of all values do not exceed; no estimate between
    two values. Raises ValueError where there are none."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def histogram(values: Sequence[float], bins: int = 40) -> list[Bin]:
    """Bins of equal width from 0, or the smallest value below it, to the greatest value."""
    if not values:
        return []
    low, high = min(0.0, *values), max(values)
    width = (high - low) / bins or 1.0
    counts = [0] * bins
    for value in values:
        counts[min(bins - 1, int((value - low) / width))] += 1
    return [
        Bin(low + number * width, low + (number + 1) * width, count)
        for number, count in enumerate(counts)
    ]
