"""Partitions that move between two workers, with and without a checkpoint before, and crashes.

What must hold whatever happens: nothing is lost, the newest wins, no room is written twice at a
time or more often than the cooldown and the crashes allow, and nothing that is due is left lying.
"""

from __future__ import annotations

from hypothesis import event, given, settings
from hypothesis import strategies as st

from heartbeat_stream.core.heartbeat import Heartbeat
from tests.support.handover import PARTITIONS, Cluster
from tests.support.layers import HOTEL, Settings

ROOMS = ["a", "b", "c", "d"]


def step(cluster: Cluster, what: int, how: int, ts: int) -> Heartbeat | None:
    """One step, read from three bytes; the heartbeat that arrived in it, if it was that."""
    cluster.now += max(what // 16 - 5, 0)
    what %= 16
    worker = how % 2
    if what < 5:
        heartbeat = Heartbeat(HOTEL, ROOMS[how % len(ROOMS)], ts % 40, status=cluster.now)
        cluster.arrive(heartbeat, cluster.now)
        return heartbeat
    if what < 8:
        cluster.write_due(worker)
    elif what < 11:
        if cluster.flights:
            cluster.answer(cluster.flights[how % len(cluster.flights)], lands=ts % 4 > 0)
    elif what == 11:
        cluster.checkpoint(worker)
    elif what == 12:
        for partition in range(PARTITIONS):
            if cluster.owner[partition] == worker:
                cluster.workers[worker].forget_clean(partition)
    elif what < 15:
        partition = how // 2 % PARTITIONS
        well = ts % 3 > 0
        event(f"handed over {'well' if well else 'badly'}")
        cluster.hand_over(partition, worker, well=well, answers=ts % 2 > 0)
    else:
        cluster.crash(worker, lands=ts % 2 > 0, kept=ts // 2 % 16)
    return None


@settings(max_examples=1200, deadline=None, derandomize=True)
@given(
    st.builds(
        Settings,
        window=st.sampled_from([0, 5, 10]),
        cooldown=st.sampled_from([0, 3, 20]),
        buffer_size_max=st.sampled_from([2, 5000]),
    ),
    st.sampled_from([0, 0, 4, -4]),
    st.binary(min_size=60, max_size=300),
)
def test_what_holds_whatever_happens(of: Settings, skew: int, code: bytes) -> None:
    cluster = Cluster(of, skew)
    newest: dict[str, Heartbeat] = {}
    for at in range(0, len(code) - 2, 3):
        heartbeat = step(cluster, *code[at : at + 3])
        cluster.check()
        if heartbeat is not None:
            before = newest.get(heartbeat.room_id)
            if before is None or heartbeat.ts_ms > before.ts_ms:
                newest[heartbeat.room_id] = heartbeat

    for _ in range(4):
        for flight in list(cluster.flights):
            cluster.answer(flight, lands=True)
        cluster.now += of.window + of.cooldown + abs(skew)
        for worker in (0, 1):
            cluster.write_due(worker)
    assert not cluster.flights
    cluster.check()
    cluster.check_cooldowns()
    assert cluster.database == newest
