"""How far behind the ends of its partitions a worker is, in records and in seconds.

All of it comes from what the consumer knows anyway: the position behind what it has fetched, and
the high watermark that every answer to a fetch carries. So a look costs no request, and tells the
state as of the last fetch.

Records are counted from the first one that has not been worked on. Where all that was fetched has
been worked on, that is the position: it never lies before the log's start, and behind markers of
transactions that nobody will ever work on.

The lag in seconds is the age of the oldest record that has not been worked on. It follows from when
the end of the partition was last seen no further than where the work is now, by this worker's
clock: devices and producers with a wrong clock do not distort it. Only what was there already when
the worker got the partition has to be judged by the timestamps of its records.
"""

from collections import deque
from collections.abc import Hashable, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

__all__ = ["Fetched", "Lag", "LagMeter", "Place"]

#: Ends remembered of a partition. When there are more, every other one is forgotten, and new ones
#: are remembered half as often: hours behind are told less exactly than seconds.
_MARKS_MAX: Final = 256


#: Whatever identifies a partition.
P = TypeVar("P", bound=Hashable)


class Place(NamedTuple):
    """A record: where it stands in its partition, and its timestamp in ms."""

    offset: int
    timestamp_ms: int


class Fetched(NamedTuple):
    """What a consumer knows of a partition."""

    position: int  #: the offset that it fetches next
    end: int | None  #: the high watermark; None: no fetch was answered yet
    end_age_s: float  #: how long ago it was told the end
    first: Place | None  #: the first record that it has fetched, if any
    last: int | None  #: the offset of the last one


class Lag(NamedTuple):
    """How far behind."""

    records: int
    seconds: float


class LagMeter(Generic[P]):
    """The lags of the partitions that a worker reads."""

    def __init__(self) -> None:
        self._partitions: dict[P, _Partition] = {}

    def look(
        self,
        fetched: Mapping[P, Fetched],
        handled: Mapping[P, Place],
        now_ms: int,
    ) -> None:
        """Take note of where fetching and work stand. To be called twice a second or so.

        ``handled``: the last record of each partition that has been worked on. Partitions that are
        not in ``fetched`` are forgotten.
        """
        for tp in self._partitions.keys() - fetched.keys():
            del self._partitions[tp]
        for tp, one in fetched.items():
            partition = self._partitions.get(tp)
            if partition is None:
                partition = self._partitions[tp] = _Partition()
            partition.look(one, handled.get(tp), now_ms)

    def lags(self, now_ms: int) -> dict[P, Lag]:
        """The lags as of the last look; nothing of a partition of which nothing is known yet."""
        return {
            tp: lag
            for tp, partition in self._partitions.items()
            if (lag := partition.lag(now_ms)) is not None
        }


class _Partition:
    """One partition: the ends that were seen and that the work has not reached."""

    def __init__(self) -> None:
        self._marks: deque[tuple[int, int]] = deque()  # (end, when it was last seen), ascending
        self._apart_ms = 0  # the least time between two of them but the newest
        self._done = 0  # the first offset that has not been worked on
        self._end: int | None = None
        # When everything that was there had been worked on.
        self._caught_up_ms: int | None = None
        # Until that is known: the timestamp of the last record before those that are left, or of
        # the first of them.
        self._timestamp_ms: int | None = None

    def look(self, fetched: Fetched, handled: Place | None, now_ms: int) -> None:
        if fetched.last is None or (handled is not None and handled.offset >= fetched.last):
            self._done = fetched.position
        elif handled is not None:
            self._done = handled.offset + 1
        elif fetched.first is not None:
            self._done = fetched.first.offset
        place = handled or fetched.first
        self._timestamp_ms = place.timestamp_ms if place is not None else None
        self._end = end = fetched.end
        if end is not None:
            self._note_end(end, now_ms - int(fetched.end_age_s * 1000))

    def _note_end(self, end: int, seen_ms: int) -> None:
        marks = self._marks
        while marks and marks[-1][0] >= end:
            marks.pop()
        if len(marks) > 1 and marks[-1][1] - marks[-2][1] < self._apart_ms:
            marks.pop()
        marks.append((end, seen_ms))
        while marks and marks[0][0] <= self._done:
            self._caught_up_ms = marks.popleft()[1]
        if not marks:
            self._apart_ms = 0
        elif len(marks) > _MARKS_MAX:
            self._marks = marks = deque(list(marks)[::2])
            self._apart_ms = (marks[-1][1] - marks[0][1]) // (len(marks) - 1)

    def lag(self, now_ms: int) -> Lag | None:
        if self._end is None:
            return None
        records = max(0, self._end - self._done)
        if not records:
            return Lag(0, 0.0)
        since = self._caught_up_ms if self._caught_up_ms is not None else self._timestamp_ms
        if since is None:  # there is something, and not even the first of it has been fetched
            since = self._marks[0][1]
        return Lag(records, max(0, now_ms - since) / 1000)
