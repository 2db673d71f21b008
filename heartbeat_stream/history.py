"""The last minutes of a worker in a bounded ring: what came in, what was written, what waits.

A look costs a few comparisons and is taken twice a second; a sample covers an interval. Intervals
begin at multiples of their length, so that samples of several workers can be added up.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

__all__ = ["INTERVAL_MS", "SAMPLES_MAX", "Figures", "History", "Sample", "add_up"]

INTERVAL_MS: Final = 5_000
#: A quarter of an hour.
SAMPLES_MAX: Final = 180


class Figures(msgspec.Struct, frozen=True):
    """What a worker counts. The first three and the rows that were
    refused only grow; the others are as of the look."""

    records: int
    rows: int
    dead_letters: int
    pending: int
    due: int
    cooling: int
    refused: int = 0


class Sample(msgspec.Struct, array_like=True):
    """One interval: when it began, in ms since 1970; how many records were read, rows written and
    dead letters made in it; how many rooms were pending, due and cooling at its end; and how many
    rows the database refused in it."""

    at_ms: int
    records: float
    rows: float
    dead_letters: float
    pending: int
    due: int
    cooling: int
    refused: float = 0.0


class History:
    """The samples of one worker, the oldest first."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._samples: deque[Sample] = deque(maxlen=SAMPLES_MAX)
        self._slot: int | None = None  # the interval that the next sample begins with
        self._before: Figures | None = None

    def look(self, figures: Figures) -> None:
        """Take note of where the counters stand."""
        slot = self._now_ms() // INTERVAL_MS
        if self._slot is None or self._before is None:
            self._slot, self._before = slot, figures
            return
        passed = slot - self._slot
        if passed <= 0:
            return
        # After a pause, what was counted since is spread over the intervals that it lasted.
        for missed in range(max(0, passed - SAMPLES_MAX), passed):
            self._samples.append(self._sample(self._slot + missed, figures, passed))
        self._slot, self._before = slot, figures

    def _sample(self, slot: int, figures: Figures, share: int) -> Sample:
        before = self._before or figures
        return Sample(
            slot * INTERVAL_MS,
            (figures.records - before.records) / share,
            (figures.rows - before.rows) / share,
            (figures.dead_letters - before.dead_letters) / share,
            figures.pending,
            figures.due,
            figures.cooling,
            (figures.refused - before.refused) / share,
        )

    def samples(self) -> list[Sample]:
        return list(self._samples)


def add_up(histories: Iterable[Iterable[Sample]]) -> list[Sample]:
    """The samples of several workers, interval by interval; as many as one worker keeps."""
    by_time: dict[int, Sample] = {}
    for history in histories:
        for one in history:
            total = by_time.get(one.at_ms)
            if total is None:
                by_time[one.at_ms] = msgspec.structs.replace(one)
                continue
            for name in one.__struct_fields__[1:]:
                setattr(total, name, getattr(total, name) + getattr(one, name))
    return [by_time[at_ms] for at_ms in sorted(by_time)][-SAMPLES_MAX:]
