"""The heartbeats of a benchmark, and what must be known of every room once all are worked on.

Everything about a row follows from its room's number and ``ts_ms``, so that the whole truth about a
topic with millions of heartbeats is one number per room.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from heartbeat_stream.core.heartbeat import Heartbeat, room_key

__all__ = ["VALUE_ENDS", "Load", "RollCall", "heartbeat", "key_of", "room_of", "value_start"]

_ROOMS_PER_HOTEL = 1000
_CHUNK = 50_000
#: Heartbeats in a millisecond of the fleet's time: 30,000 a second, the design figure.
_PER_MS = 30
#: Of a load with hot rooms, the share of heartbeats that goes to them.
_HOT_SHARE = 0.9


@dataclass(frozen=True)
class Load:
    """So many heartbeats of so many rooms, each drawn at random; the same ones for the same seed.

    ``hot_rooms``: how many rooms get nine of ten heartbeats; 0 where all get the same.
    ``start_ms``: the fleet's time at the first one.
    """

    messages: int
    rooms: int
    start_ms: int
    hot_rooms: int = 0
    seed: int = 1

    @property
    def end_ms(self) -> int:
        """The greatest ``ts_ms``."""
        return self.start_ms + (self.messages - 1) // _PER_MS

    def chunks(self) -> Iterator[list[tuple[int, int]]]:
        """All heartbeats in order, as room and ts_ms, some ten thousands at a time."""
        rng = random.Random(self.seed)
        for start in range(0, self.messages, _CHUNK):
            count = min(_CHUNK, self.messages - start)
            times = [self.start_ms + index // _PER_MS for index in range(start, start + count)]
            yield list(zip(self._draw(rng, count), times, strict=True))

    def _draw(self, rng: random.Random, count: int) -> list[int]:
        if not self.hot_rooms:
            return rng.choices(range(self.rooms), k=count)
        return [
            int(rng.random() * (self.hot_rooms if rng.random() < _HOT_SHARE else self.rooms))
            for _ in range(count)
        ]

    def newest(self) -> dict[int, int]:
        """The greatest ``ts_ms`` of every room that has any heartbeat."""
        newest: dict[int, int] = {}
        for chunk in self.chunks():
            newest.update(chunk)  # times never go back
        return newest


@dataclass(frozen=True)
class RollCall:
    """A heartbeat of each room, all with the same time, in an order that is no order."""

    rooms: int
    ts_ms: int

    @property
    def messages(self) -> int:
        return self.rooms

    def chunks(self) -> Iterator[list[tuple[int, int]]]:
        """As :meth:`Load.chunks`."""
        rooms = list(range(self.rooms))
        random.Random(1).shuffle(rooms)
        for start in range(0, self.rooms, _CHUNK):
            yield [(room, self.ts_ms) for room in rooms[start : start + _CHUNK]]

    def newest(self) -> dict[int, int]:
        return dict.fromkeys(range(self.rooms), self.ts_ms)


def heartbeat(room: int, ts_ms: int) -> Heartbeat:
    """The heartbeat that a room has at a time."""
    return Heartbeat(
        hotel_id=room // _ROOMS_PER_HOTEL,
        room_id=str(1000 + room % _ROOMS_PER_HOTEL),
        ts_ms=ts_ms,
        device_id=f"d{room:06d}",
        status=ts_ms % 3,
    )


def key_of(room: int) -> bytes:
    """The key of a room's records."""
    return room_key(room // _ROOMS_PER_HOTEL, str(1000 + room % _ROOMS_PER_HOTEL))


def room_of(hotel_id: int, room_id: str) -> int:
    """The number of a room by its row."""
    return hotel_id * _ROOMS_PER_HOTEL + int(room_id) - 1000


def value_start(room: int) -> bytes:
    """The value of a room's records up to its time; :data:`VALUE_ENDS` closes it."""
    return b'{"hotel_id":%d,"room_id":"%d","device_id":"d%06d","ts_ms":' % (
        room // _ROOMS_PER_HOTEL,
        1000 + room % _ROOMS_PER_HOTEL,
        room,
    )


#: What follows the time in a record's value, by the time modulo 3.
VALUE_ENDS = (b',"status":0}', b',"status":1}', b',"status":2}')
