"""What a worker says of itself in `/metrics`, as far as the demo shows it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

from heartbeat_stream.core.reasons import Reason

__all__ = ["Figures", "Rates"]


@dataclass(frozen=True)
class Figures:
    """One look at a worker: counters since its start, gauges of the moment.

    Every record is counted once, as a dead letter by its reason, a tombstone, combined (a newer one
    of the room came in the same batch), stale (not newer than what was known) or merged.
    ``dead_letters`` has the reasons that have occurred. ``directory`` is the worker's own.
    """

    records: int = 0
    tombstones: int = 0
    combined: int = 0
    stale: int = 0
    merged: int = 0
    rows_written: int = 0
    dead_letters: Mapping[str, int] = field(default_factory=dict)
    pending: int = 0
    cooling: int = 0
    waiting: int = 0
    in_flight: int = 0
    directory: str = ""

    @classmethod
    def read(cls, exposition: str) -> Figures:
        """Read Prometheus' text format. What is missing counts as 0."""
        values: dict[str, int] = {}
        dead_letters: dict[str, int] = {}
        directory = ""
        for family in text_string_to_metric_families(exposition):
            for sample in family.samples:
                if sample.name == _DEAD_LETTERS:
                    if sample.value:
                        dead_letters[sample.labels["reason"]] = int(sample.value)
                elif sample.name == _INFO:
                    directory = sample.labels["directory"]
                elif sample.name in _FIELDS:
                    values[_FIELDS[sample.name]] = int(sample.value)
        return cls(dead_letters=dead_letters, directory=directory, **values)

    @property
    def refused(self) -> int:
        """Rows that the database refused: dead letters, but no records of the source."""
        return self.dead_letters.get(Reason.ROW_REFUSED, 0)

    @property
    def broken(self) -> int:
        """Records that are no heartbeats."""
        return sum(self.dead_letters.values()) - self.refused

    @property
    def dropped(self) -> int:
        """Records that changed nothing."""
        return self.broken + self.tombstones + self.combined + self.stale

    @property
    def on_the_way(self) -> int:
        """Records read whose fate is not decided yet: forwarded to the repartition topic."""
        return self.records - self.dropped - self.merged


_DEAD_LETTERS = "heartbeat_dead_letters_total"
_INFO = "heartbeat_worker_info"
_FIELDS = {
    "heartbeat_records_total": "records",
    "heartbeat_tombstones_total": "tombstones",
    "heartbeat_combined_total": "combined",
    "heartbeat_stale_total": "stale",
    "heartbeat_merged_total": "merged",
    "heartbeat_rows_written_total": "rows_written",
    "heartbeat_rooms_pending": "pending",
    "heartbeat_rooms_cooling": "cooling",
    "heartbeat_rooms_waiting": "waiting",
    "heartbeat_rooms_in_flight": "in_flight",
}


class Rates:
    """How fast counters go, over the last few seconds: rows come in bursts."""

    SPAN_S = 5.0

    def __init__(self) -> None:
        self._seen: deque[tuple[float, Figures]] = deque()

    def note(self, now_s: float, figures: Figures) -> None:
        """`now_s`: of a clock that never steps."""
        self._seen.append((now_s, figures))
        while len(self._seen) > 2 and self._seen[1][0] <= now_s - self.SPAN_S:
            self._seen.popleft()

    def per_second(self, counter: Callable[[Figures], int]) -> float:
        """0 as long as there is nothing to compare with."""
        if len(self._seen) < 2:
            return 0.0
        (first_s, first), (last_s, last) = self._seen[0], self._seen[-1]
        return (counter(last) - counter(first)) / (last_s - first_s)
