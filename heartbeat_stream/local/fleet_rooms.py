"""The rooms of a simulated fleet, and what the devices in them report.

A room's report is a function of its time alone. So reports with the same ``ts_ms`` are copies of
each other, byte for byte, and it does not matter which of them somebody sees first.
"""

import json
import time
from collections.abc import Iterator

from heartbeat_stream.core.fields import HOTEL_ID_MAX
from heartbeat_stream.core.heartbeat import Heartbeat, room_key

_FIRST_HOTEL = 1001
HOTELS_MAX = HOTEL_ID_MAX - _FIRST_HOTEL + 1
ROOMS_MAX = 2_000_000  # 0.8 GB

_NAMED_ROOMS = ("大会议室", "总统套房", "多功能厅", "西楼:茶室", "健身房", "Salle de réunion")
_ROOMS_PER_FLOOR = 20
_STATUSES = 3


class Room:
    """A room whose devices send JSON as it should be: one to four of them, one at a time."""

    __slots__ = ("_device", "_devices", "_head", "_number", "hotel_id", "key", "room_id")

    def __init__(self, hotel_id: int, room_id: str, number: int) -> None:
        self.hotel_id = hotel_id
        self.room_id = room_id
        self.key = room_key(hotel_id, room_id)
        self._number = number
        self._devices = 1 + number % 4
        self._device = f"dev-{hotel_id}-{number}-"
        self._head = self._first_bytes()

    def _first_bytes(self) -> bytes:
        start = f'{{"hotel_id":{self.hotel_id},"room_id":"{self.room_id}",'
        return f'{start}"device_id":"{self._device}'.encode()

    def _device_at(self, ts_ms: int) -> int:
        return (ts_ms * 0x9E3779B1 >> 11) % self._devices

    def _status_at(self, ts_ms: int) -> int:
        return ((ts_ms >> 14) + self._number) % _STATUSES  # a new one every 16 s

    def value(self, ts_ms: int) -> bytes:
        """The value of the record that is sent for this time."""
        return b'%b%d","ts_ms":%d,"status":%d}' % (
            self._head,
            self._device_at(ts_ms),
            ts_ms,
            self._status_at(ts_ms),
        )

    def heartbeat(self, ts_ms: int) -> Heartbeat:
        """What :meth:`value` must be read as."""
        device = f"{self._device}{self._device_at(ts_ms)}"
        return Heartbeat(self.hotel_id, self.room_id, ts_ms, device, self._status_at(ts_ms))


class StringRoom(Room):
    """A room with an older gateway: numbers as strings, a leading zero, escapes, one more field."""

    __slots__ = ()

    def _first_bytes(self) -> bytes:
        start = f'{{"hotel_id":"0{self.hotel_id}","room_id":{json.dumps(self.room_id)},'
        return f'{start}"device_id":"{self._device}'.encode()

    def value(self, ts_ms: int) -> bytes:
        return b'%b%d","ts_ms":"%d","status":"%d","current_time":"%b"}' % (
            self._head,
            self._device_at(ts_ms),
            ts_ms,
            self._status_at(ts_ms),
            time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(ts_ms // 1000)).encode(),
        )


class AnonymousRoom(Room):
    """A room whose device names neither itself nor a status."""

    __slots__ = ()

    def _first_bytes(self) -> bytes:
        return f'{{"hotel_id":{self.hotel_id},"room_id":"{self.room_id}","ts_ms":'.encode()

    def value(self, ts_ms: int) -> bytes:
        return b"%b%d}" % (self._head, ts_ms)

    def heartbeat(self, ts_ms: int) -> Heartbeat:
        return Heartbeat(self.hotel_id, self.room_id, ts_ms)


_RARE_KINDS: dict[int, type[Room]] = {3: StringRoom, 7: AnonymousRoom, 19: StringRoom}


def build_rooms(hotels: int, rooms_per_hotel: int) -> list[Room]:
    """All rooms of a fleet, hotel by hotel; always the same ones for the same two numbers."""
    rooms: list[Room] = []
    for hotel_id in range(_FIRST_HOTEL, _FIRST_HOTEL + hotels):
        for index, room_id in enumerate(_room_ids(rooms_per_hotel)):
            kind = _RARE_KINDS.get(len(rooms) % 50, Room)
            rooms.append(kind(hotel_id, room_id, index))
    return rooms


def _room_ids(rooms: int) -> Iterator[str]:
    """``101`` to ``120``, ``201`` and so on; the last one of each floor has a name instead."""
    for index in range(rooms):
        floor, place = divmod(index, _ROOMS_PER_FLOOR)
        if place == _ROOMS_PER_FLOOR - 1 or index == rooms - 1:
            round_, name = divmod(floor, len(_NAMED_ROOMS))
            yield _NAMED_ROOMS[name] + (str(round_ + 1) if round_ else "")
        else:
            yield str(100 * (floor + 1) + place + 1)
