"""The simulated fleet: its oracle is right, and it sends what a real one sends."""

import json
from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heartbeat_stream.core.heartbeat import (
    Bounds,
    Heartbeat,
    Rejected,
    canonical_key_matches,
    decode,
    room_key,
)
from heartbeat_stream.core.reasons import Reason
from heartbeat_stream.local.fleet import Fleet, FleetCounts
from heartbeat_stream.local.fleet_faults import FAULTS
from heartbeat_stream.local.fleet_rooms import HOTELS_MAX, Room, build_rooms
from heartbeat_stream.local.record_sender import Record
from heartbeat_stream.local.simulate import records_due

NOW = 1_700_000_000_000
BOUNDS = Bounds(1_420_070_400_000, NOW + 300_000)


def replay(records: list[Record]) -> tuple[dict[bytes, Heartbeat], FleetCounts]:
    """What a plain reading of the rules makes of the records, in this order."""
    newest: dict[bytes, Heartbeat] = {}
    counts = FleetCounts()
    for key, value in records:
        try:
            heartbeat = decode(value, BOUNDS)
            if key is not None and not canonical_key_matches(key, heartbeat):
                raise Rejected(Reason.WRONG_KEY, "")
        except Rejected as rejected:
            counts.broken[rejected.reason] += 1
            continue
        room = room_key(heartbeat.hotel_id, heartbeat.room_id)
        before = newest.get(room)
        if before is None or heartbeat.ts_ms > before.ts_ms:
            newest[room] = heartbeat
            counts.newer += 1
        elif heartbeat.ts_ms == before.ts_ms:
            assert heartbeat == before  # otherwise it mattered which one came first
            counts.duplicates += 1
        else:
            counts.late += 1
    return newest, counts


@settings(max_examples=100, deadline=None)
@given(
    hotels=st.integers(1, 4),
    rooms=st.integers(1, 60),
    seed=st.integers(),
    keyed=st.booleans(),
    steps=st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 300)), max_size=8),
    broken_share=st.sampled_from([0, 0.005, 0.5]),
)
def test_the_oracle_equals_a_replay_in_any_order(
    hotels: int,
    rooms: int,
    seed: int,
    keyed: bool,
    steps: list[tuple[int, int]],
    broken_share: float,
) -> None:
    fleet = Fleet(hotels, rooms, seed, keyed, broken_share=broken_share)
    records = []
    now_ms = NOW - 40_000
    for pause_ms, n in steps:
        now_ms += pause_ms
        made = fleet.generate(now_ms, n)
        assert len(made) == n
        records += made
    assert all((key is not None) == keyed for key, _ in records)
    newest, counts = replay(records)
    assert fleet.oracle() == newest
    assert fleet.counts == counts
    assert fleet.counts.sent == len(records)
    backwards, _ = replay(records[::-1])
    assert backwards == newest


def test_of_a_room_the_same_time_always_comes_with_the_same_bytes() -> None:
    fleet = Fleet(hotels=1, rooms_per_hotel=3, broken_share=0)
    values: dict[tuple[int, str, int], bytes] = {}
    for _, value in fleet.generate(NOW, 20_000):  # far more than a millisecond has room for
        it = decode(value, BOUNDS)
        assert values.setdefault((it.hotel_id, it.room_id, it.ts_ms), value) == value


def test_the_same_seed_sends_the_same_and_another_one_does_not() -> None:
    def sent(seed: int) -> list[Record]:
        fleet = Fleet(seed=seed)
        return fleet.generate(NOW, 500) + fleet.generate(NOW + 100, 500)

    assert sent(7) == sent(7)
    assert sent(7) != sent(8)


def test_the_shares_of_a_usual_fleet() -> None:
    fleet = Fleet()
    for step in range(1000):
        fleet.generate(NOW + step * 20, 100)  # 2.5 a second for each room
    counts = fleet.counts
    assert counts.sent == 100_000
    assert 0.003 < counts.broken.total() / counts.sent < 0.007
    assert 0.06 < counts.duplicates / counts.sent < 0.12
    assert 0.04 < counts.late / counts.sent < 0.10
    assert counts.broken.keys() == {reason for reason, _ in FAULTS}
    assert len(fleet.oracle()) == 20 * 100


def test_late_records_and_jitter_stay_within_their_bounds() -> None:
    fleet = Fleet(broken_share=0)
    ages = [NOW - decode(value, BOUNDS).ts_ms for _, value in fleet.generate(NOW, 50_000)]
    assert min(ages) == 0
    assert 100_000 < max(ages) <= 120_000
    assert 0.93 < sum(age < 50 for age in ages) / len(ages) < 0.97


def test_the_devices_of_a_room_take_turns_and_its_status_changes() -> None:
    fleet = Fleet(hotels=1, rooms_per_hotel=4, broken_share=0, late_share=0)
    seen = [
        decode(v, BOUNDS)
        for t in range(200)
        for _, v in fleet.generate(NOW - 200_000 + t * 1000, 20)
    ]
    devices = {room: {s.device_id for s in seen if s.room_id == room} for room in ("101", "103")}
    assert {room: len(names) for room, names in devices.items()} == {"101": 1, "103": 3}
    assert not devices["101"] & devices["103"]
    statuses = [s.status for s in seen if s.room_id == "101"]
    assert set(statuses) == {0, 1, 2}
    assert sum(a != b for a, b in pairwise(statuses)) < len(statuses) / 10  # not at every record


def test_rooms_are_spelled_as_all_kinds_of_devices_do() -> None:
    rooms = build_rooms(3, 300)
    assert len({room.key for room in rooms}) == 900
    names = {room.room_id for room in rooms}
    assert {"101", "118", "大会议室", "西楼:茶室"} <= names
    spellings = Counter(type(room).__name__ for room in rooms)
    assert spellings == {"Room": 846, "StringRoom": 36, "AnonymousRoom": 18}
    for room in rooms:
        assert decode(room.value(NOW), BOUNDS) == room.heartbeat(NOW)
    as_string = next(
        room for room in rooms if type(room).__name__ == "StringRoom" and not room.room_id.isascii()
    )
    assert json.loads(as_string.value(NOW))["hotel_id"] == f"0{as_string.hotel_id}"
    assert as_string.value(NOW).isascii()


@pytest.mark.parametrize(("reason", "value_of"), FAULTS)
def test_a_fault_has_the_reason_that_it_is_said_to_have(
    reason: Reason, value_of: Callable[[Room, int], bytes]
) -> None:
    for room in build_rooms(1, 50):
        with pytest.raises(Rejected) as rejected:
            decode(value_of(room, NOW), BOUNDS)
        assert rejected.value.reason == reason


def test_a_keyed_fleet_sometimes_gets_a_key_wrong() -> None:
    fleet = Fleet(keyed=True, broken_share=1)
    fleet.generate(NOW, 500)
    assert fleet.counts.broken.keys() == {reason for reason, _ in FAULTS} | {Reason.WRONG_KEY}


@pytest.mark.parametrize(
    ("hotels", "rooms"), [(0, 1), (1, 0), (-1, 1), (HOTELS_MAX + 1, 1), (9, 10**6)]
)
def test_what_makes_no_fleet(hotels: int, rooms: int) -> None:
    with pytest.raises(ValueError, match=r"(fleet|hotel) has .*, not -?\d+"):
        Fleet(hotels, rooms)


def test_a_large_fleet_stays_within_the_hotels_that_there_can_be() -> None:
    decode(build_rooms(HOTELS_MAX, 1)[-1].value(NOW), BOUNDS)


def test_what_a_stall_held_up_is_due_at_once_afterwards_and_no_more() -> None:
    assert records_due(0.0, 1000, 60_000) == 0
    assert records_due(0.02, 1000, 60_000) == 20
    assert records_due(10.0, 1000, 60_000) == 10_000
    assert records_due(10.0, 0.35, 21) == 3
    assert records_due(61.0, 1000, 60_000) == 60_000
