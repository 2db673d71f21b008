"""When an event was received: what the door says, or else the record's own timestamp.

The same record always has the same time, whoever looks at it and whenever: the table knows an
event by it.
"""

from typing import Final

__all__ = ["EARLIEST_MS", "LATEST_MS", "received_at_ms"]

EARLIEST_MS: Final = 1_420_070_400_000
"""2015-01-01"""
LATEST_MS: Final = 4_102_444_799_999
"""The end of 2099. Times beyond these bounds are nobody's clock."""
_DAY_MS: Final = 86_400_000


def received_at_ms(door_ms: int | None, timestamp_ms: int) -> int:
    """The time, within the bounds. The door's may be older than the record, which was kept back
    then; one that lies more than a day ahead of it is not believed.
    """
    if door_ms is not None and EARLIEST_MS <= door_ms <= timestamp_ms + _DAY_MS:
        timestamp_ms = door_ms
    return min(max(timestamp_ms, EARLIEST_MS), LATEST_MS)
