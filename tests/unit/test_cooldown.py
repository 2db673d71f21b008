"""The due index, asked and told directly."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heartbeat_stream.core.cooldown import Schedule
from heartbeat_stream.core.heartbeat import Heartbeat, room_key
from heartbeat_stream.core.room import NEVER, Phase, Room

WINDOW, COOLDOWN = 5000, 30000


def new_room(name: str, ts_ms: int = 1) -> Room:
    return Room.first(Heartbeat(7, name, ts_ms), room_key(7, name), 0, 0, 0, NEVER)


def schedule_of(buffer_size_max: int = 5000) -> Schedule:
    return Schedule(WINDOW, COOLDOWN, buffer_size_max)


def arrive(schedule: Schedule, room: Room, ts_ms: int, now: int) -> None:
    """What a merge does with a heartbeat that is newer."""
    room.take(Heartbeat(7, room.room_id, ts_ms), 0, 0)
    if room.phase < Phase.COOLING:
        schedule.note_newer(room, now)


def take(schedule: Schedule, now: int, limit: int = 99) -> list[str]:
    return [room.room_id for room in schedule.take(now, limit)]


def write(schedule: Schedule, rooms: Sequence[Room], now: int) -> None:
    schedule.acknowledge(rooms, [room.ts_ms for room in rooms], now)


@pytest.fixture
def schedule() -> Schedule:
    return schedule_of()


def test_an_empty_index_has_nothing_to_do(schedule: Schedule) -> None:
    assert schedule.next_instant() is None
    assert schedule.take(10**15, 99) == []
    assert (schedule.due(10**15), schedule.pending, schedule.in_flight, schedule.waiting) == (
        (0, 0, 0, 0)
    )


@pytest.mark.parametrize(
    ("written_at", "due_at"), [(NEVER, 105_000), (75_000, 105_000), (75_001, 105_001)]
)
def test_a_room_is_due_after_its_window_and_its_cooldown(
    schedule: Schedule, written_at: int, due_at: int
) -> None:
    room = new_room("a")
    room.written_at = written_at
    schedule.note_newer(room, 100_000)
    assert schedule.due_at(room) == due_at
    assert take(schedule, due_at - 1) == []
    assert take(schedule, due_at) == ["a"]


def test_it_says_when_to_look_again(schedule: Schedule) -> None:
    a, b = new_room("a"), new_room("b")
    schedule.note_newer(a, 100)
    schedule.note_newer(b, 50)
    assert schedule.next_instant() == 5050
    assert (schedule.pending, schedule.waiting) == (2, 2)

    assert take(schedule, 5049) == []
    assert take(schedule, 5050) == ["b"]
    assert schedule.next_instant() == 5100
    assert (schedule.pending, schedule.in_flight, schedule.waiting) == (2, 1, 1)

    arrive(schedule, b, 2, 5060)
    schedule.acknowledge([b], [1], 5070)
    assert (schedule.pending, schedule.in_flight) == (2, 0)
    assert take(schedule, 5100) == ["a"]
    write(schedule, [a], 5101)
    assert (schedule.pending, schedule.in_flight) == (1, 0)
    assert b.written_at == 5070
    assert schedule.next_instant() == 35070


def test_the_longest_waiting_goes_first_and_no_more_than_asked_for(schedule: Schedule) -> None:
    for at, name in enumerate("cadb"):
        schedule.note_newer(new_room(name), at)
    assert schedule.due(4999) == 0
    assert schedule.due(5002) == 3
    assert take(schedule, 6000, 2) == ["c", "a"]
    assert schedule.in_flight == 2
    assert take(schedule, 6000, 0) == []
    assert take(schedule, 6000, 2) == ["d", "b"]
    assert schedule.due(6000) == 0


def test_what_failed_is_due_at_once_but_behind_the_others(schedule: Schedule) -> None:
    a, b = new_room("a"), new_room("b")
    schedule.note_newer(a, 0)
    schedule.note_newer(b, 10)
    (first,) = schedule.take(5000, 99)
    schedule.give_back([first])
    assert (schedule.pending, schedule.in_flight) == (2, 0)
    assert take(schedule, 5010) == ["a", "b"]
    schedule.give_back([a, b])
    assert take(schedule, 5010, 1) == ["a"]
    assert take(schedule, 5010, 1) == ["b"]


def test_it_does_not_matter_that_nobody_looked_for_long() -> None:
    """Two rooms end their cooldown and fill the buffer, and then a third one arrives."""
    schedule = schedule_of(buffer_size_max=2)
    a, b, c = map(new_room, "abc")
    schedule.note_newer(a, 0)
    schedule.note_newer(b, 0)
    write(schedule, schedule.take(0, 99), 0)
    arrive(schedule, a, 2, 29000)
    arrive(schedule, b, 2, 29500)

    arrive(schedule, c, 2, 33000)  # a and b have been due together since 30000
    assert take(schedule, 33000) == ["a", "b"]
    assert take(schedule, 37999) == []
    assert take(schedule, 38000) == ["c"]


def test_instants_count_one_after_the_other_also_when_looked_at_late() -> None:
    """The first of two rooms, whose windows end at 34000 and 38000, must not be gone already when
    the second one fills the buffer at 33000."""
    schedule = schedule_of(buffer_size_max=2)
    a, b = map(new_room, "ab")
    a.written_at = b.written_at = 0
    a.written_ts = b.written_ts = 0
    b.written_at = 3000
    arrive(schedule, a, 2, 29000)
    arrive(schedule, b, 2, 32999)
    assert take(schedule, 35000) == ["a", "b"]


def test_nor_that_nobody_looked_before_an_acknowledgement() -> None:
    schedule = Schedule(WINDOW, cooldown_ms=0, buffer_size_max=2)
    a, b = map(new_room, "ab")
    schedule.note_newer(b, 0)
    schedule.take(5000, 99)
    schedule.note_newer(a, 5000)
    arrive(schedule, b, 2, 9000)

    schedule.acknowledge([b], [1], 10000)  # a is due by now, and does not share the buffer with b
    assert take(schedule, 13999) == ["a"]
    assert take(schedule, 14000) == ["b"]


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(st.integers(0, 20), st.sampled_from("abcd")), max_size=20),
    st.sampled_from([1, 2, 3, 5000]),
    st.integers(0, 30),
)
def test_being_asked_often_changes_nothing(
    arrivals: list[tuple[int, str]], full: int, end: int
) -> None:
    taken = []
    for often in (True, False):
        schedule = Schedule(5, 7, full)
        rooms = {name: new_room(name, 0) for name in "abcd"}
        for at, room in enumerate(rooms.values()):
            room.written_at, room.written_ts = 3 * at, 0
        for now in range(end):
            if often:
                schedule.due(now)
            for ts, (at, name) in enumerate(arrivals):
                if at == now:
                    arrive(schedule, rooms[name], ts + 1, now)
        taken.append((take(schedule, end), schedule.pending))
    assert taken[0] == taken[1]


# -- acknowledged ------------------------------------------------------------------------------


def test_a_room_that_got_nothing_newer_is_done(schedule: Schedule) -> None:
    room = new_room("a", 5)
    schedule.note_newer(room, 0)
    write(schedule, schedule.take(5000, 99), 5200)
    assert (room.phase, room.written_at, room.written_ts) == (Phase.IDLE, 5200, 5)
    assert (schedule.pending, schedule.in_flight, schedule.next_instant()) == (0, 0, None)


def test_what_was_written_never_goes_back(schedule: Schedule) -> None:
    """The tables told, during the write, of a later one."""
    room = new_room("a", 5)
    schedule.note_newer(room, 0)
    schedule.take(5000, 99)
    arrive(schedule, room, 9, 5050)
    room.written_ts = 9
    schedule.acknowledge([room], [5], 5200)
    assert (room.phase, room.written_at, room.written_ts) == (Phase.IDLE, 5200, 9)
    assert schedule.pending == 0


def test_each_room_needs_its_written_ts(schedule: Schedule) -> None:
    room = new_room("a")
    schedule.note_newer(room, 0)
    with pytest.raises(ValueError, match="shorter"):
        schedule.acknowledge(schedule.take(5000, 99), [], 5000)


def test_since_when_a_room_has_something_new(schedule: Schedule) -> None:
    room = new_room("a")
    schedule.note_newer(room, 0)
    arrive(schedule, room, 2, 4000)
    assert room.arrived_at == 0
    schedule.take(5000, 99)
    arrive(schedule, room, 3, 5100)
    arrive(schedule, room, 4, 5150)
    assert room.arrived_at == 0, "not written yet"
    schedule.give_back([room])
    assert (room.arrived_at, room.written_at) == (0, NEVER)
    schedule.take(5200, 99)
    arrive(schedule, room, 5, 5300)
    schedule.acknowledge([room], [4], 5400)
    assert room.arrived_at == 5300


def test_what_is_known_to_be_written_starts_nothing(schedule: Schedule) -> None:
    """After a crash between the checkpoints of the two tables, it is read once more."""
    room = new_room("a", 5)
    room.written_at, room.written_ts = 0, 9
    arrive(schedule, room, 7, 1000)
    arrive(schedule, room, 9, 1001)
    assert (room.phase, schedule.pending, schedule.next_instant()) == (Phase.IDLE, 0, None)
    arrive(schedule, room, 10, 2000)
    assert schedule.next_instant() == 30000


# -- parked ------------------------------------------------------------------------------------


def rooms_in_every_phase(schedule: Schedule) -> dict[str, Room]:
    """At 6000: idle, cooling, waiting and due rooms."""
    rooms = {name: new_room(name) for name in ("idle", "cooling", "waiting", "due")}
    for name in ("idle", "cooling"):
        schedule.note_newer(rooms[name], 0)
    write(schedule, schedule.take(5000, 99), 5000)
    schedule.note_newer(rooms["due"], 500)
    arrive(schedule, rooms["cooling"], 2, 5500)
    schedule.note_newer(rooms["waiting"], 5600)
    schedule.due(6000)
    for name, room in rooms.items():
        assert Phase(room.phase).name == name.upper()
    return rooms


def test_nothing_of_a_parked_room_is_due(schedule: Schedule) -> None:
    rooms = rooms_in_every_phase(schedule)
    for _ in range(2):  # the second time nothing is left to do
        schedule.park(rooms.values())
        assert {room.phase for room in rooms.values()} == {Phase.PARKED}
        assert (schedule.pending, schedule.cooling, schedule.waiting) == (0, 0, 0)
    assert take(schedule, 10**9) == []
    assert schedule.due(10**9) == 0


def test_a_room_that_comes_back_is_due_when_it_was_due_before(schedule: Schedule) -> None:
    rooms = rooms_in_every_phase(schedule)
    for _ in range(3):
        schedule.park(rooms.values())
        for name in ("cooling", "waiting", "due"):
            schedule.enter(rooms[name], 6000)
    assert (schedule.pending, schedule.cooling, schedule.waiting) == (3, 1, 1)
    assert take(schedule, 6000) == ["due"], "once, however often it was due"
    assert take(schedule, 10599) == []
    assert take(schedule, 10600) == ["waiting"]
    assert take(schedule, 34999) == []
    assert take(schedule, 35000) == ["cooling"]
    assert schedule.cooling == 0
    assert schedule.in_flight == 3


@pytest.mark.parametrize("newer", [False, True])
def test_a_room_in_flight_cannot_be_parked(schedule: Schedule, newer: bool) -> None:
    room = new_room("2045:大")
    schedule.note_newer(room, 0)
    schedule.take(5000, 99)
    if newer:
        arrive(schedule, room, 2, 5001)
    with pytest.raises(ValueError, match="in flight"):
        schedule.park([room])


def test_times_that_lie_ahead_count_as_now(schedule: Schedule) -> None:
    a, b = new_room("a"), new_room("b")
    a.arrived_at = 3_600_000
    schedule.enter(a, 100)
    b.arrived_at, b.written_at, b.written_ts = 0, 3_600_000, 0
    schedule.enter(b, 200)
    assert (a.arrived_at, b.written_at) == (100, 200)
    assert take(schedule, 5100) == ["a"]
    assert take(schedule, 30199) == []
    assert take(schedule, 30200) == ["b"]


def test_a_room_that_waits_again_is_not_due_when_it_would_have_been_before() -> None:
    schedule = Schedule(WINDOW, cooldown_ms=0, buffer_size_max=2)
    a, b = map(new_room, "ab")
    schedule.note_newer(a, 0)
    schedule.note_newer(b, 10)
    assert take(schedule, 10) == ["a", "b"]
    arrive(schedule, a, 2, 20)
    schedule.acknowledge([a, b], [1, 1], 30)
    assert take(schedule, 5019) == []
    assert take(schedule, 5020) == ["a"]


# -- the buffer --------------------------------------------------------------------------------


def test_a_full_buffer_is_due_as_a_whole_in_the_order_of_arrival() -> None:
    schedule = schedule_of(buffer_size_max=3)
    for at, name in enumerate("cab"):
        assert schedule.due(at) == 0
        schedule.note_newer(new_room(name), at)
        assert schedule.waiting == (at + 1) % 3
    assert take(schedule, 2) == ["c", "a", "b"]


def test_a_parked_room_leaves_the_buffer() -> None:
    schedule = schedule_of(buffer_size_max=2)
    a, b, c = map(new_room, "abc")
    schedule.note_newer(a, 0)
    schedule.park([a])
    schedule.note_newer(b, 1)
    assert take(schedule, 1) == []
    schedule.note_newer(c, 2)
    assert take(schedule, 2) == ["b", "c"]


def test_a_room_that_comes_back_counts_again() -> None:
    schedule = schedule_of(buffer_size_max=2)
    a, b = map(new_room, "ab")
    schedule.note_newer(a, 0)
    schedule.park([a])
    schedule.note_newer(b, 1)
    schedule.enter(a, 2)
    assert take(schedule, 2) == ["b", "a"]


def test_nothing_is_left_behind() -> None:
    """Rooms that change their minds leave entries, which must go in their time."""
    schedule = schedule_of(buffer_size_max=2)
    rooms = [new_room(str(number)) for number in range(9)]
    now = 0
    for now in range(0, 300_000, 700):
        for room in rooms:
            arrive(schedule, room, now + 1, now)
        if now % 2100 == 0:
            schedule.park(rooms)
            for room in rooms:
                room.phase = Phase.IDLE
                if room.pending:
                    schedule.enter(room, now)
        write(schedule, schedule.take(now, 99), now)
    write(schedule, schedule.take(now + WINDOW + COOLDOWN, 99), now)
    assert schedule.take(10**9, 99) == []
    assert schedule.next_instant() is None
    assert not schedule._rooms_at
    assert not schedule._due
    assert not schedule._waiting
    assert (schedule.pending, schedule.in_flight) == (0, 0)
