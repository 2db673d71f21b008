"""Which heartbeat wins: batches against a naive rule, and rooms between memory and tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from heartbeat_stream.core.cooldown import Schedule
from heartbeat_stream.core.heartbeat import Bounds, Heartbeat, parse_key, room_key
from heartbeat_stream.core.latest import (
    Candidate,
    Combined,
    Merged,
    Shard,
    combine,
    encode_candidate,
    merge,
    merge_forwarded,
)
from heartbeat_stream.core.reasons import Reason
from heartbeat_stream.core.room import NEVER, Phase, Room, Stored, Written
from tests.support.layers import SourceRecord

BOUNDS = Bounds(10, 99)
PARTITION = 3
ROOMS = [(7, "a"), (7, "b:1"), (70, "a"), (7, "大会议室")]
KEYS = [room_key(*room) for room in ROOMS]


# -- batches -----------------------------------------------------------------------------------


class Sent(NamedTuple):
    """A record before it has an offset, and what is wrong with it."""

    key: bytes | None
    value: bytes | None
    heartbeat: Heartbeat | None
    reason: Reason | None = None


def good(room: int, ts: int, status: int) -> Sent:
    heartbeat = Heartbeat(*ROOMS[room], ts, None, status)
    return Sent(KEYS[room], msgspec.json.encode(heartbeat), heartbeat)


def with_wrong_key(room: int, ts: int, key: bytes | None) -> Sent:
    sent = good(room, ts, 0)
    right = key == sent.key
    return sent._replace(key=key, reason=None if right else Reason.WRONG_KEY)


NUMBER = st.integers(0, len(ROOMS) - 1)
TS = st.integers(10, 20)
SENT = st.one_of(
    st.builds(good, NUMBER, TS, st.integers(0, 9)),
    st.builds(good, NUMBER, TS, st.integers(0, 9)),
    st.builds(with_wrong_key, NUMBER, TS, st.sampled_from([*KEYS, None, b"", b"7:a ", b"07:a"])),
    st.builds(
        lambda room, ts: good(room, ts, 0)._replace(
            heartbeat=None, reason=Reason.TS_TOO_OLD if ts < 10 else Reason.TS_TOO_NEW
        ),
        NUMBER,
        st.sampled_from([0, 9, 100]),
    ),
    st.builds(Sent, st.sampled_from([*KEYS, None]), st.none(), st.none()),
    st.builds(Sent, st.sampled_from(KEYS), st.just(b"{"), st.none(), st.just(Reason.NOT_JSON)),
)
BATCH = st.lists(SENT, max_size=25).map(
    lambda sent: [(SourceRecord(100 + n, s.key, s.value), s) for n, s in enumerate(sent)]
)
KNOWN = st.dictionaries(st.sampled_from(KEYS), TS)


def stored(key: bytes, ts: int, arrived_at: int = 0) -> Stored:
    return Stored(*parse_key(key), ts, None, None, 0, 0, arrived_at)


def shard_with(known: dict[bytes, int], now: int = 0) -> Shard:
    """Its rooms are known, and were written just now."""
    shard = Shard(PARTITION, Schedule(5, 30, 5000))
    for key, ts in known.items():
        shard.restore(key, stored(key, ts), Written(now, ts), now=now)
    return shard


class Naive:
    """Reads records one by one, and remembers of each room what came first with the greatest ts."""

    def __init__(self, known: dict[bytes, int]) -> None:
        self.ts = dict(known)
        self.newest: dict[bytes, tuple[Heartbeat, int]] = {}
        self.rejected: list[tuple[int, Reason]] = []
        self.tombstones = 0
        self.stale = 0

    def read(self, record: SourceRecord, sent: Sent) -> None:
        if sent.value is None:
            self.tombstones += 1
        elif sent.reason is not None:
            self.rejected.append((record.offset, sent.reason))
        elif sent.heartbeat is not None and sent.key is not None:
            if sent.heartbeat.ts_ms <= self.ts.get(sent.key, 0):
                self.stale += 1
            else:
                self.ts[sent.key] = sent.heartbeat.ts_ms
                self.newest[sent.key] = sent.heartbeat, record.offset


def codes(merged: Merged | Combined) -> list[tuple[int, Reason]]:
    return [(record.offset, why.reason) for record, why in merged.rejected]


def assert_as_in(naive: Naive, shard: Shard, known: dict[bytes, int], now: int) -> None:
    assert {key: room.newest.ts_ms for key, room in shard.rooms.items()} == naive.ts
    changed = {room.key: room for room in shard.changed}
    assert len(changed) == len(shard.changed)
    assert changed.keys() == naive.newest.keys()
    for key, room in shard.rooms.items():
        assert room.key == key
        assert room.changed == (key in changed)
        if key in naive.newest:
            assert (room.newest, room.source_offset) == naive.newest[key]
            assert room.source_partition == PARTITION
            assert room.arrived_at == now
            assert room.phase == (Phase.COOLING if key in known else Phase.WAITING)
        else:
            assert room.phase == Phase.IDLE
    assert shard.schedule.pending == len(changed)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(KNOWN, KNOWN, BATCH)
def test_a_merged_batch_is_what_its_records_are_one_by_one(
    in_memory: dict[bytes, int],
    in_tables: dict[bytes, int],
    batch: Sequence[tuple[SourceRecord, Sent]],
) -> None:
    in_tables = {key: ts for key, ts in in_tables.items() if key not in in_memory}
    shard = shard_with(in_memory)
    naive = Naive(in_memory)
    for record, sent in batch:
        naive.read(record, sent)

    merged = merge(shard, [record for record, _ in batch], BOUNDS, 1)

    assert codes(merged) == naive.rejected
    assert merged.tombstones == naive.tombstones
    assert merged.stale == naive.stale
    assert {
        key: (missed.heartbeat, missed.source_offset) for key, missed in merged.missed.items()
    } == {key: newest for key, newest in naive.newest.items() if key not in in_memory}

    naive = Naive(in_memory | in_tables)
    for record, sent in batch:
        naive.read(record, sent)
    for key, candidate in merged.missed.items():
        assert candidate.source_partition == PARTITION
        ts = in_tables.get(key)
        newer = shard.admit(key, (stored(key, ts), Written(0, ts)) if ts else None, candidate, 1)
        assert newer == (key in naive.newest)
        event("admitted" if newer else "not newer than what the tables know")
    looked_up = {key: ts for key, ts in in_tables.items() if key in merged.missed}
    naive.ts = {key: ts for key, ts in naive.ts.items() if key in shard.rooms}
    assert_as_in(naive, shard, in_memory | looked_up, 1)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(KNOWN, BATCH)
def test_what_is_combined_and_forwarded_arrives_as_if_merged_at_once(
    known: dict[bytes, int], batch: Sequence[tuple[SourceRecord, Sent]]
) -> None:
    # A source that is not keyed: the key tells nothing.
    batch = [
        (
            record,
            sent._replace(
                key=room_key(*room_of(sent.heartbeat)) if sent.heartbeat else None, reason=why
            ),
        )
        for record, sent in batch
        for why in [None if sent.reason == Reason.WRONG_KEY else sent.reason]
    ]
    naive = Naive({})
    for record, sent in batch:
        naive.read(record, sent)

    combined = combine([record for record, _ in batch], PARTITION, BOUNDS)

    assert codes(combined) == naive.rejected
    assert combined.tombstones == naive.tombstones
    assert {
        room_key(*room): (candidate.heartbeat, candidate.source_offset)
        for room, candidate in combined.newest.items()
    } == naive.newest
    assert combined.stale + len(combined.newest) == sum(
        sent.value is not None and sent.reason is None for _, sent in batch
    )

    shard = shard_with(known)
    forwarded = [
        SourceRecord(n, room_key(*room), encode_candidate(candidate))
        for n, (room, candidate) in enumerate(combined.newest.items())
    ]
    merged = merge_forwarded(shard, forwarded, 1)
    assert not merged.rejected
    naive = Naive(known)
    for record, sent in batch:
        naive.read(record, sent)
    for key, candidate in merged.missed.items():
        assert shard.admit(key, None, candidate, 1)
    assert merged.stale == len(combined.newest) - len(naive.newest)
    assert_as_in(naive, shard, known, 1)


def room_of(heartbeat: Heartbeat) -> tuple[int, str]:
    return heartbeat.hotel_id, heartbeat.room_id


@settings(max_examples=400, deadline=None, derandomize=True)
@given(KNOWN, BATCH)
def test_forwarded_records_of_several_batches(
    known: dict[bytes, int], batch: Sequence[tuple[SourceRecord, Sent]]
) -> None:
    naive = Naive(known)
    records: list[SourceRecord] = []
    for record, sent in batch:
        if sent.heartbeat is not None and sent.reason is None:
            naive.read(record, sent)
            candidate = Candidate(sent.heartbeat, PARTITION, record.offset)
            records.append(SourceRecord(len(records), sent.key, encode_candidate(candidate)))
    shard = shard_with(known)
    merged = merge_forwarded(shard, records, 1)
    assert merged.stale == naive.stale
    for key, candidate in merged.missed.items():
        assert shard.admit(key, None, candidate, 1)
    assert_as_in(naive, shard, known, 1)


def test_what_the_repartition_topic_carries() -> None:
    """The order of the parts is what a newer version of the worker must still be able to read."""
    candidate = Candidate(Heartbeat(7, "大", 11, "DEV1", -1), 2, 34)
    assert msgspec.json.decode(encode_candidate(candidate)) == [
        {"hotel_id": 7, "room_id": "大", "ts_ms": 11, "device_id": "DEV1", "status": -1},
        2,
        34,
    ]


FORWARDED = encode_candidate(Candidate(Heartbeat(7, "a", 15), 0, 0))


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (b"7:a", None, Reason.NOT_JSON),
        (b"7:a", b"", Reason.NOT_JSON),
        (b"7:a", b'{"hotel_id":7,"room_id":"a","ts_ms":15}', Reason.NOT_JSON),
        (b"7:a", b'[{"hotel_id":7,"room_id":"\xff","ts_ms":15},0,0]', Reason.NOT_JSON),
        (b"7:a", b'[{"hotel_id":7,"room_id":"a","ts_ms":1,"x":' + 10**5 * b"[", Reason.NOT_JSON),
        (None, FORWARDED, Reason.WRONG_KEY),
        (b"7:b", FORWARDED, Reason.WRONG_KEY),
        (b"07:a", FORWARDED, Reason.WRONG_KEY),
    ],
)
def test_rubbish_in_the_repartition_topic_takes_no_neighbour_along(
    key: bytes | None, value: bytes | None, reason: Reason
) -> None:
    shard = shard_with({})
    records = [
        SourceRecord(0, b"7:a", FORWARDED),
        SourceRecord(1, key, value),
        SourceRecord(2, b"7:a", FORWARDED.replace(b"15", b"16")),
    ]
    merged = merge_forwarded(shard, records, 1)
    assert codes(merged) == [(1, reason)]
    assert merged.missed[b"7:a"].heartbeat.ts_ms == 16


@pytest.mark.parametrize("in_memory", [False, True])
def test_the_key_that_would_be_right_is_named(in_memory: bool) -> None:
    shard = shard_with({b"7:x": 11} if in_memory else {})
    record = SourceRecord(0, b"7:x", b'{"hotel_id":"07","room_id":"\xe5\xa4\xa7","ts_ms":15}')
    ((rejected, why),) = merge(shard, [record], BOUNDS, 1).rejected
    assert rejected is record
    assert (why.reason, why.detail) == (Reason.WRONG_KEY, r"the key must be 7:\u5927")


# -- a room between memory and the tables ------------------------------------------------------

KEY = b"7:a"


def candidate(ts: int) -> Candidate:
    return Candidate(Heartbeat(7, "a", ts, "DEV1", 1), PARTITION, 34)


def new_shard(window: int = 5, cooldown: int = 30) -> Shard:
    return Shard(PARTITION, Schedule(window, cooldown, 5000))


def only(shard: Shard) -> Room:
    (room,) = shard.rooms.values()
    return room


def test_a_room_that_nobody_knew() -> None:
    shard = new_shard()
    assert shard.admit(KEY, None, candidate(11), 100)
    room = only(shard)
    assert room.stored() == Stored(7, "a", 11, "DEV1", 1, PARTITION, 34, 100)
    assert (room.written_at, room.written_ts) == (NEVER, NEVER)
    assert shard.changed == [room]
    assert shard.schedule.next_instant() == 105


@pytest.mark.parametrize("ts", [10, 11])
def test_a_room_that_the_tables_know_better(ts: int) -> None:
    shard = new_shard()
    assert not shard.admit(KEY, (stored(KEY, 11), Written(50, 11)), candidate(ts), 100)
    room = only(shard)
    assert room.newest.ts_ms == 11
    assert room.clean
    assert (shard.changed, shard.schedule.pending) == ([], 0)


def test_a_room_that_the_tables_knew_as_pending_keeps_its_due_time() -> None:
    shard = new_shard(window=90)
    assert shard.admit(KEY, (stored(KEY, 11, arrived_at=40), None), candidate(12), 100)
    room = only(shard)
    assert room.stored() == Stored(7, "a", 12, "DEV1", 1, PARTITION, 34, 40)
    assert (shard.changed, shard.schedule.pending) == ([room], 1)
    assert shard.schedule.next_instant() == 130


def test_a_room_comes_back_as_it_was() -> None:
    kept = Stored(7, "大:1", 11, None, -3, 2, 34, 40)
    shard = new_shard()
    room = shard.restore("7:大:1".encode(), kept, Written(20, 10), now=41)
    assert (room.key, room.partition) == ("7:大:1".encode(), PARTITION)
    assert shard.rooms == {room.key: room}
    assert room.stored() == kept
    assert (room.written_at, room.written_ts) == (20, 10)
    assert (shard.changed, shard.settled) == ([], [])
    assert room.pending
    assert not room.clean
    assert shard.schedule.next_instant() == 50


def test_rooms_of_one_batch_share_its_times() -> None:
    shard = new_shard()

    def restore(key: bytes) -> Room:
        kept = msgspec.json.decode(b'{"at": 1700000000001, "ts_ms": 10}', type=Written)
        return shard.restore(key, stored(key, 11, arrived_at=int("1700000000002")), kept, now=2**50)

    one, other = restore(KEYS[0]), restore(KEYS[1])
    assert one.written_at == 1_700_000_000_001
    assert one.written_at is other.written_at
    assert one.arrived_at is other.arrived_at


def test_times_ahead_of_the_clock_count_as_now_once_and_for_all() -> None:
    shard = new_shard()
    room = shard.restore(KEY, stored(KEY, 11, arrived_at=900), Written(1000, 10), now=100)
    assert (room.arrived_at, room.written_at, room.written_ts) == (100, 100, 10)
    assert (shard.changed, shard.settled) == ([room], [room])
    assert shard.schedule.next_instant() == 130

    shard = new_shard()
    fresh = shard.restore(KEY, stored(KEY, 11, arrived_at=900), None, now=100)
    assert (fresh.arrived_at, shard.changed, shard.settled) == (100, [fresh], [])

    shard = new_shard()
    idle = shard.restore(KEY, stored(KEY, 11), Written(1000, 11), now=100)
    assert (idle.written_at, shard.changed, shard.settled) == (100, [], [idle])
    assert shard.schedule.pending == 0


def test_flags_are_raised_once() -> None:
    shard = new_shard()
    room = shard.restore(KEY, stored(KEY, 11), Written(0, 11), now=0)
    for _ in range(2):
        shard.note_changed(room)
        shard.note_settled([room])
    assert (shard.changed, shard.settled) == ([room], [room])
    assert not room.clean


def test_since_when_a_room_is_pending_is_kept_anew_once_a_write_is_acknowledged() -> None:
    shard = new_shard(window=5, cooldown=0)
    shard.admit(KEY, None, candidate(11), 0)
    room = only(shard)
    shard.schedule.take(5, 9)
    merge(shard, [SourceRecord(35, KEY, msgspec.json.encode(candidate(12).heartbeat))], BOUNDS, 6)
    assert room.stored().arrived_at == 0
    room.changed = False
    shard.changed.clear()  # a checkpoint
    shard.schedule.acknowledge([room], [11], 7)
    shard.note_settled([room])
    assert room.stored().arrived_at == 6
    assert shard.changed == [room]


@pytest.mark.parametrize(
    ("clean", "flags"),
    [(True, {}), (False, {"changed": True}), (False, {"settled": True}), (False, {"phase": 6})],
)
def test_memory_may_forget_what_the_tables_know(clean: bool, flags: dict[str, Any]) -> None:
    shard = shard_with({KEY: 11})
    room = only(shard)
    for name, value in flags.items():
        setattr(room, name, value)
    assert room.clean == clean


# -- what memory and the tables know is joined -------------------------------------------------


class Join(NamedTuple):
    """A room in memory, what the tables hold, and what must come of it, all at 100."""

    memory: tuple[int, int, int, int]  # newest, its arrival; last write, when
    tables: tuple[Stored | None, Written | None]
    result: tuple[int, int, int, int]
    due_at: int | None
    flags: str = ""


JOINS = {
    "the same": Join(
        (11, 40, 10, 20), (stored(KEY, 11, 40), Written(20, 10)), (11, 40, 10, 20), 100
    ),
    "nothing in the tables": Join(
        (11, 98, 10, 20), (None, None), (11, 98, 10, 20), 103, "changed settled"
    ),
    "never written": Join(
        (11, 98, NEVER, NEVER), (None, None), (11, 98, NEVER, NEVER), 103, "changed"
    ),
    "memory has the newer one": Join(
        (12, 98, 10, 80), (stored(KEY, 11, 40), Written(80, 10)), (12, 98, 10, 80), 110, "changed"
    ),
    "the tables have the newer one": Join(
        (11, 40, 11, 80), (stored(KEY, 12, 99), Written(80, 11)), (12, 99, 11, 80), 110
    ),
    "both are new, and the first counts": Join(
        (11, 96, NEVER, NEVER), (stored(KEY, 12, 99), None), (12, 96, NEVER, NEVER), 101
    ),
    "both are new, the other way round": Join(
        (11, 99, NEVER, NEVER), (stored(KEY, 12, 96), None), (12, 96, NEVER, NEVER), 101
    ),
    "somebody has written it": Join(
        (11, 40, 10, 20), (stored(KEY, 11, 40), Written(60, 11)), (11, 40, 11, 60), None
    ),
    "somebody has written it and more came": Join(
        (11, 40, 10, 20), (stored(KEY, 12, 99), Written(60, 11)), (12, 99, 11, 60), 104
    ),
    "somebody has written the same later": Join(
        (12, 90, 11, 60), (stored(KEY, 12, 90), Written(80, 11)), (12, 90, 11, 80), 110
    ),
    "somebody has written an older one later": Join(
        (13, 90, 12, 60),
        (stored(KEY, 13, 90), Written(80, 11)),
        (13, 90, 12, 80),
        110,
        "changed settled",
    ),
    "memory has written it later": Join(
        (13, 90, 12, 80),
        (stored(KEY, 13, 90), Written(60, 11)),
        (13, 90, 12, 80),
        110,
        "changed settled",
    ),
    "both lie ahead of the clock": Join(
        (11, 40, 11, 60),
        (stored(KEY, 13, 900), Written(800, 12)),
        (13, 100, 12, 100),
        130,
        "changed settled",
    ),
}


@pytest.mark.parametrize("parked", [False, True])
@pytest.mark.parametrize("join", JOINS.values(), ids=JOINS)
def test_of_memory_and_tables_the_newer_of_each(join: Join, parked: bool) -> None:
    shard = new_shard()
    newest, arrived_at, written_ts, written_at = join.memory
    written = None if written_ts == NEVER else Written(written_at, written_ts)
    room = shard.restore(KEY, stored(KEY, newest, arrived_at), written, now=99)
    if parked:
        shard.park()

    shard.reconcile(room, *join.tables, now=100)

    assert (room.newest.ts_ms, room.written_ts, room.written_at) == (
        join.result[0],
        *join.result[2:],
    )
    assert room.phase != Phase.PARKED
    assert ("changed " * room.changed + "settled" * room.settled).strip() == join.flags
    assert shard.schedule.pending == (join.due_at is not None)
    if join.due_at is not None:
        assert room.arrived_at == join.result[1]
        assert join.due_at == 100 or not shard.schedule.take(join.due_at - 1, 9)
        assert shard.schedule.take(join.due_at, 9) == [room]


def test_what_is_adopted_is_adopted_whole() -> None:
    shard = shard_with({KEY: 11})
    room = only(shard)
    kept = Stored(7, "a", 12, "DEV9", 5, 6, 78, 90)
    shard.reconcile(room, kept, Written(0, 11), now=100)
    assert room.stored() == kept


@pytest.mark.parametrize("newer_in_memory", [False, True])
def test_what_the_tables_tell_of_a_room_in_flight(newer_in_memory: bool) -> None:
    """Another worker wrote to the changelog, and ours is in the middle of a write."""
    shard = new_shard(window=5, cooldown=0)
    shard.admit(KEY, None, candidate(11), 0)
    room = only(shard)
    shard.schedule.take(50, 9)
    if newer_in_memory:
        shard.schedule.due(60)
        merge(
            shard, [SourceRecord(9, KEY, msgspec.json.encode(candidate(12).heartbeat))], BOUNDS, 60
        )

    shard.reconcile(room, stored(KEY, 13, arrived_at=70), None, now=100)

    assert room.phase == Phase.FLIGHT_NEWER
    assert (shard.schedule.pending, shard.schedule.in_flight) == (1, 1)
    shard.schedule.acknowledge([room], [11], 101)
    assert room.newest.ts_ms == 13
    assert room.arrived_at == (60 if newer_in_memory else 70)
    assert shard.schedule.due(101) == 1


def test_a_room_in_flight_that_somebody_has_written_already() -> None:
    shard = new_shard()
    shard.admit(KEY, None, candidate(11), 0)
    room = only(shard)
    shard.schedule.take(50, 9)
    shard.reconcile(room, stored(KEY, 13), Written(70, 13), now=100)
    assert room.phase == Phase.FLIGHT_NEWER
    shard.schedule.acknowledge([room], [11], 110)
    assert (room.phase, room.written_at, room.written_ts) == (Phase.IDLE, 110, 13)


def test_a_partition_that_is_parked_and_comes_back() -> None:
    shard = shard_with({KEYS[1]: 11})
    shard.admit(KEYS[0], None, candidate(11), 0)
    shard.admit(KEYS[2], None, Candidate(Heartbeat(70, "a", 11), 0, 0), 3)
    shard.park()
    assert shard.schedule.pending == 0
    shard.unpark(4)
    assert [room.phase for room in shard.rooms.values()] == [
        Phase.IDLE,
        Phase.WAITING,
        Phase.WAITING,
    ]
    assert shard.schedule.pending == 2
    shard.unpark(4)
    assert shard.schedule.pending == 2, "what is not parked stays as it is"
    assert [room.key for room in shard.schedule.take(5, 9)] == [KEYS[0]]
    assert [room.key for room in shard.schedule.take(8, 9)] == [KEYS[2]]
