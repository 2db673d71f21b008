"""When a room is due: the buffer window and the cooldown, as an index of due times.

All times are milliseconds of one clock, handed in by the caller. A room with something new is due
at ``max(first new heartbeat's arrival + window, last write + cooldown)``. The index never looks at
rooms that have nothing to write, and at a pending one only when a time of its own has come.

Whenever it is asked or told something, it first goes through the instants that have passed since,
each in its turn. What it answers therefore does not depend on how often it is asked.
"""

import heapq
from collections import deque
from collections.abc import Iterable

from heartbeat_stream.core.room import Phase, Room

__all__ = ["Schedule"]


class Schedule:
    """The pending rooms of one worker, across all its partitions.

    ``buffer_size_max`` bounds how many rooms may wait for nothing but their window: when it is
    reached they are all due at once. Rooms in their cooldown do not count.
    """

    def __init__(self, window_ms: int, cooldown_ms: int, buffer_size_max: int) -> None:
        self._window_ms = window_ms
        self._cooldown_ms = cooldown_ms
        self._buffer_size_max = buffer_size_max
        self._due: deque[Room] = deque()
        self._waiting: dict[Room, None] = {}
        # Rooms by the millisecond at which to look at them again. Many share one, so the heap
        # holds instants, not rooms. A room that changed its mind stays in its old list, and is
        # recognised there by its own times, which give another instant.
        self._instants: list[int] = []
        self._rooms_at: dict[int, list[Room]] = {}
        self.pending = 0
        self.cooling = 0
        self.in_flight = 0

    # -- what the rooms report -------------------------------------------------------------------

    def note_newer(self, room: Room, now: int) -> None:
        """An idle room, or one in flight, has got its first newer heartbeat."""
        if room.phase == Phase.FLIGHT:
            # Until the write is acknowledged, ``arrived_at`` is of what is in flight.
            room.newer_at = now
            room.phase = Phase.FLIGHT_NEWER
        elif room.pending:
            # Otherwise a crash came between the checkpoints of the two tables, and what is read
            # again now is known to be written.
            room.arrived_at = now
            self.enter(room, now)

    def enter(self, room: Room, now: int) -> None:
        """Take in an idle or parked room that is pending, ``arrived_at`` and ``written_at`` set.

        Both times may come from another worker's clock: one that lies ahead counts as now, so
        that no room waits longer than its window and its cooldown.
        """
        if self._instants and self._instants[0] <= now:
            self._advance(now)
        if room.arrived_at > now:
            room.arrived_at = now
        if room.written_at > now:
            room.written_at = now
        self.pending += 1
        self._place(room, now)

    def acknowledge(self, rooms: Iterable[Room], written_ts: Iterable[int], now: int) -> None:
        """The database has acknowledged the writes of these rooms, or settled them for good."""
        self._advance(now)
        for room, ts_ms in zip(rooms, written_ts, strict=True):
            self.in_flight -= 1
            room.written_at = now
            room.written_ts = max(room.written_ts, ts_ms)
            if room.pending:
                room.arrived_at = room.newer_at
                self._place(room, now)
            else:
                room.phase = Phase.IDLE
                self.pending -= 1

    def give_back(self, rooms: Iterable[Room]) -> None:
        """The database has not taken these: they stay due, with whatever is newest by then."""
        for room in rooms:
            self.in_flight -= 1
            room.phase = Phase.DUE
            self._due.append(room)

    def park(self, rooms: Iterable[Room]) -> None:
        """Forget these rooms, none of them in flight: their partition is given up, or may be."""
        for room in rooms:
            if room.phase in (Phase.FLIGHT, Phase.FLIGHT_NEWER):
                raise ValueError(f"room {room.key!r} is in flight")
            if room.phase == Phase.WAITING:
                del self._waiting[room]
            if room.phase == Phase.COOLING:
                self.cooling -= 1
            if room.phase not in (Phase.IDLE, Phase.PARKED):
                self.pending -= 1
            room.phase = Phase.PARKED

    # -- what the timer asks ---------------------------------------------------------------------

    def take(self, now: int, limit: int) -> list[Room]:
        """At most ``limit`` rooms that are due, the longest waiting first; they are in flight."""
        self._advance(now)
        taken: list[Room] = []
        due = self._due
        while due and len(taken) < limit:
            room = due.popleft()
            if room.phase == Phase.DUE:
                room.phase = Phase.FLIGHT
                taken.append(room)
        self.in_flight += len(taken)
        return taken

    def due(self, now: int) -> int:
        """How many rooms are due; parked ones that have not been cleared away yet count too."""
        self._advance(now)
        return len(self._due)

    def due_at(self, room: Room) -> int:
        """When a pending room is due, unless a full buffer makes it due before."""
        return max(room.arrived_at + self._window_ms, room.written_at + self._cooldown_ms)

    def next_instant(self) -> int | None:
        """When to look again if nothing is due; None if no room waits for any time."""
        return self._instants[0] if self._instants else None

    @property
    def waiting(self) -> int:
        """How many rooms wait only for their window."""
        return len(self._waiting)

    # --------------------------------------------------------------------------------------------

    def _place(self, room: Room, now: int) -> None:
        cooled_at = room.written_at + self._cooldown_ms
        if cooled_at > now:
            room.phase = Phase.COOLING
            self.cooling += 1
            self._wake_at(room, cooled_at)
            return
        due_at = room.arrived_at + self._window_ms
        if due_at <= now:
            room.phase = Phase.DUE
            self._due.append(room)
            return
        room.phase = Phase.WAITING
        self._waiting[room] = None
        self._wake_at(room, due_at)
        if len(self._waiting) == self._buffer_size_max:
            for waiting in self._waiting:
                waiting.phase = Phase.DUE
            self._due.extend(self._waiting)
            self._waiting.clear()

    def _wake_at(self, room: Room, instant: int) -> None:
        rooms = self._rooms_at.get(instant)
        if rooms is None:
            self._rooms_at[instant] = [room]
            heapq.heappush(self._instants, instant)
        else:
            rooms.append(room)

    def _advance(self, now: int) -> None:
        while self._instants and self._instants[0] <= now:
            instant = heapq.heappop(self._instants)
            rooms = self._rooms_at.pop(instant)
            # Who is due makes room in the buffer before others begin to wait.
            for room in rooms:
                if room.phase == Phase.WAITING and room.arrived_at + self._window_ms == instant:
                    del self._waiting[room]
                    room.phase = Phase.DUE
                    self._due.append(room)
            for room in rooms:
                if room.phase == Phase.COOLING and room.written_at + self._cooldown_ms == instant:
                    self.cooling -= 1
                    self._place(room, instant)
