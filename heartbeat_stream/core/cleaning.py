"""Which of the stored copies of an event is kept, and what becomes of the others.

Kept is the one that was flushed first: copies differ in nothing else that has an order. One without
a ``_flush_time`` counts as flushed last; what is equal is decided by where it stood in Kafka.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from heartbeat_stream.core.tracking import marked, unmarked

__all__ = ["Place", "Remarked", "StoredCopy", "Verdicts", "judge_group"]


class Place(NamedTuple):
    """What names a row: no two rows of the table share it."""

    topic: str
    partition: int
    offset: int
    received_at: datetime


class StoredCopy(NamedTuple):
    """A row, as far as it matters here."""

    place: Place
    flush_time_ms: int | None
    remark: str | None


class Remarked(NamedTuple):
    """A row whose remark is to become another one."""

    place: Place
    before: str | None
    after: str | None


class Verdicts(NamedTuple):
    """What is to be done. Rows that are right already are in none of the lists."""

    unmark: list[Remarked]
    mark: list[Remarked]
    delete: list[Place]

    def add(self, more: "Verdicts") -> None:
        """Take in what is to be done about other groups."""
        self.unmark.extend(more.unmark)
        self.mark.extend(more.mark)
        self.delete.extend(more.delete)


def judge_group(copies: Sequence[StoredCopy], *, delete: bool = False) -> Verdicts:
    """Judge all stored rows of one event, at least one. Their order does not matter.

    ``delete``: the others go, instead of being marked. Judged once more after it was done, the
    group needs nothing.
    """
    kept, *others = sorted(copies, key=_order)
    if delete:
        return Verdicts(_changed(kept, unmarked(kept.remark)), [], [one.place for one in others])
    marks = [change for one in others for change in _changed(one, marked(one.remark))]
    return Verdicts(_changed(kept, unmarked(kept.remark)), marks, [])


def _order(copy: StoredCopy) -> tuple[bool, int, Place]:
    return copy.flush_time_ms is None, copy.flush_time_ms or 0, copy.place


def _changed(copy: StoredCopy, remark: str | None) -> list[Remarked]:
    if copy.remark == remark:
        return []
    return [Remarked(copy.place, copy.remark, remark)]
