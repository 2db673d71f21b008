"""What a table that forgets keeps under a key: a payload, how new it is, and until when it counts.

The version is the offset, in the topic that feeds the table, of the record that made the entry. So
the later of two entries wins whatever the order in which they are read, and an entry tells whether
a record has been taken into account already.
"""

import struct
from typing import Final, NamedTuple

__all__ = ["Clock", "Entry", "expires_of", "payload_of", "version_of", "wrap"]

_HEAD: Final = struct.Struct(">qq")
_expiry = struct.Struct(">q").unpack_from


class Entry(NamedTuple):
    """One value, taken apart. ``expires_ms`` is on the partition's clock: see :class:`Clock`."""

    version: int
    expires_ms: int
    payload: bytes

    @classmethod
    def read(cls, value: bytes) -> "Entry":
        version, expires_ms = _HEAD.unpack_from(value)
        return cls(version, expires_ms, payload_of(value))


def wrap(version: int, expires_ms: int, payload: bytes) -> bytes:
    """The value of an entry."""
    return _HEAD.pack(version, expires_ms) + payload


def payload_of(value: bytes) -> bytes:
    """What :func:`wrap` was given."""
    return value[_HEAD.size :]


def version_of(value: bytes) -> int:
    """How new a value is: of two, the greater is to be kept."""
    version: int = _HEAD.unpack_from(value)[0]
    return version


def expires_of(value: bytes) -> int:
    """Until when a value counts, in ms."""
    expires_ms: int = _expiry(value, 8)[0]
    return expires_ms


class Clock:
    """The time of one partition: the greatest timestamp among the records that it has seen.

    Lifetimes are measured by it, so that a backlog is judged as it happened, and an outage lets
    nothing expire. It never steps back, and never goes ahead of the worker's own time.
    """

    __slots__ = ("now_ms",)

    def __init__(self) -> None:
        self.now_ms = 0

    def see(self, timestamp_ms: int, wall_ms: int) -> None:
        """A record with this timestamp has come at that time of the worker."""
        if self.now_ms < timestamp_ms <= wall_ms:
            self.now_ms = timestamp_ms
        elif timestamp_ms > wall_ms > self.now_ms:
            self.now_ms = wall_ms

    def expires_ms(self, timestamp_ms: int, lifetime_ms: int) -> int:
        """When an entry may go that a record with this timestamp has made."""
        return max(timestamp_ms, self.now_ms) + lifetime_ms
