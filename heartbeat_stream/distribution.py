"""How often a figure lay within which bounds: what Prometheus calls a histogram.

Counting costs less than a microsecond and knows nothing of Prometheus, so that every part of the
worker can do it; ``metrics/`` makes the histogram of it when asked.
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

__all__ = ["COUNTS", "SECONDS", "Distribution"]

#: Bounds for what takes from a millisecond to a minute.
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
#: Bounds for how many there are of something.
COUNTS = (1.0, 10.0, 50.0, 100.0, 250.0, 500.0, 1_000.0, 2_500.0, 5_000.0, 10_000.0, 100_000.0)


class Distribution:
    """Counts of observed values by bounds, each of which is the greatest value of its bucket."""

    def __init__(self, bounds: Sequence[float]) -> None:
        """The bounds ascend."""
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def cumulative(self) -> list[tuple[str, int]]:
        """Upper bound, as Prometheus writes it, and how many values were not above it."""
        names = [*map(repr, self.bounds), "+Inf"]
        return list(zip(names, accumulate(self.counts), strict=True))
