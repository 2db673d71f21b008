"""What the two layers promise, simulated millisecond by millisecond, in the words of the promises.

Nothing here is shared with the code that it is compared with, and nothing is fast.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field

from tests.support.layers import Settings


@dataclass
class ModelRoom:
    #: Arrival and ``ts_ms`` of the heartbeats that were the greatest when they arrived, from the
    #: first one on that is, or was, the first new one.
    accepted: list[tuple[int, int]] = field(default_factory=list)
    written_at: float = -math.inf
    written_ts: float = -math.inf
    in_flight: int | None = None
    #: The buffer was full of rooms like this one.
    at_once: bool = False
    #: Who began to wait for its write first counts first.
    since: int = 0

    @property
    def newest(self) -> float:
        return self.accepted[-1][1] if self.accepted else -math.inf

    @property
    def pending(self) -> bool:
        return self.newest > self.written_ts

    @property
    def first_new(self) -> int:
        return next(arrival for arrival, ts in self.accepted if ts > self.written_ts)


class Model:
    """All rooms of a worker. ``now`` only goes on, and whatever happens, happens at ``now``."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.now = 0
        self.rooms: dict[str, ModelRoom] = {}
        self.buffer: list[str] = []
        self._count = 0
        self._durable: dict[str, ModelRoom] = {}

    # -- what happens ----------------------------------------------------------------------------

    def go_on(self, until: int) -> None:
        while self.now < until:
            self.now += 1
            self._look()

    def arrive(self, name: str, ts: int) -> None:
        room = self.rooms.setdefault(name, ModelRoom())
        if ts > room.newest:
            if not room.pending:
                self._begin_to_wait(room)
                room.accepted = []
            room.accepted.append((self.now, ts))
            self._look()

    def hand_over(self, name: str) -> None:
        room = self.rooms[name]
        assert self.is_due(room)
        assert room.in_flight is None
        room.in_flight = room.accepted[-1][1]

    def acknowledge(self, name: str) -> None:
        room = self.rooms[name]
        assert room.in_flight is not None
        room.written_at, room.written_ts = self.now, room.in_flight
        room.in_flight, room.at_once = None, False
        if room.pending:
            room.accepted = [one for one in room.accepted if one[1] > room.written_ts]
        self._begin_to_wait(room)
        self._look()

    def fail(self, name: str) -> None:
        self.rooms[name].in_flight = None

    def checkpoint(self) -> None:
        self.begin_checkpoint(set(self.rooms), set(self.rooms))

    def begin_checkpoint(self, latest_of: set[str], written_of: set[str]) -> None:
        """Of these rooms the newest heartbeat becomes durable, and of those the last write.

        They differ where a crash comes in the middle of a checkpoint.
        """
        for name, room in self.rooms.items():
            durable = self._durable.setdefault(name, ModelRoom())
            if name in latest_of:
                # What came between the two is not kept.
                durable.accepted = [(room.accepted[0][0], room.accepted[-1][1])]
            if name in written_of and room.written_ts > -math.inf:
                durable.written_at, durable.written_ts = room.written_at, room.written_ts

    def restart(self, order: list[str]) -> None:
        """Start from what is durable; ``order`` is that in which the rooms are read from it.

        A room of which no heartbeat is durable is not known, whatever its last write.
        """
        self.rooms = {
            name: copy.deepcopy(self._durable[name])
            for name in order
            if name in self._durable and self._durable[name].accepted
        }
        self.buffer = []
        for room in self.rooms.values():
            self._begin_to_wait(room)
        self._look()

    # -- what is the case ------------------------------------------------------------------------

    def is_cooled(self, room: ModelRoom) -> bool:
        return self.now >= room.written_at + self.settings.cooldown

    def is_due(self, room: ModelRoom) -> bool:
        if not room.pending:
            return False
        window_is_over = self.now >= room.first_new + self.settings.window
        return room.at_once or (window_is_over and self.is_cooled(room))

    def phase(self, name: str) -> str:
        room = self.rooms[name]
        if room.in_flight is not None:
            return "FLIGHT_NEWER" if room.newest > room.in_flight else "FLIGHT"
        if not room.pending:
            return "IDLE"
        if self.is_due(room):
            return "DUE"
        return "WAITING" if self.is_cooled(room) else "COOLING"

    # --------------------------------------------------------------------------------------------

    def _begin_to_wait(self, room: ModelRoom) -> None:
        self._count += 1
        room.since = self._count

    def _look(self) -> None:
        """Who waits for nothing but its window, and are they as many as the buffer holds?"""
        self.buffer = [name for name in self.buffer if self.phase(name) == "WAITING"]
        for name in sorted(self.rooms, key=lambda name: self.rooms[name].since):
            if self.phase(name) == "WAITING" and name not in self.buffer:
                self.buffer.append(name)
                if len(self.buffer) >= self.settings.buffer_size_max:
                    for full in self.buffer:
                        self.rooms[full].at_once = True
                    self.buffer = []
