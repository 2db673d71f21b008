"""What every test of a fault ends with: all rows, all writes, all dead letters.

A room may be written once more than its cooldown allows for each crash. So every write that comes
early must have a crash between it and the one before, and each crash excuses one write of a room.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from heartbeat_stream.core.heartbeat import Bounds, Rejected, decode, room_key
from tests.support.oracle import CLOCK_TOLERANCE_MS, SHOWN, Attempt, Oracle, RoomId, now_ms
from tests.support.topic_reader import read_topic
from tests.support.world import World

__all__ = ["Crash", "all_is_right", "crashes_told", "dead_letters_are_complete", "unexcused"]

#: A statement that a killed worker has sent may still be carried out for so long.
LINGERING_MS = 2_000


class Crash(NamedTuple):
    """A time, in milliseconds, after which a worker no longer knew of what it had written."""

    begins: float
    ends: float

    @classmethod
    def now(cls) -> Crash:
        """A worker has just been killed."""
        return cls(time.time() * 1000, time.time() * 1000 + LINGERING_MS)

    def until_now(self) -> Crash:
        """The same, but it has lasted until now: the worker was frozen, or cut off, say."""
        return Crash(self.begins, time.time() * 1000 + LINGERING_MS)


_WITHOUT_CHECKPOINT = re.compile(
    r"^(\d\d):(\d\d):(\d\d)\.\d+ .*(?:given up without a checkpoint|without a last checkpoint)",
    re.MULTILINE,
)
_DAY_S = 86_400


def crashes_told(log: str) -> list[Crash]:
    """The moments of the last day at which a worker says that it could not make a checkpoint.

    Giving a partition up without one counts as a crash. On a machine that is too busy it happens.
    """
    crashes = []
    now = time.time()
    midnight = time.mktime((*time.localtime(now)[:3], 0, 0, 0, 0, 0, -1))
    for hours, minutes, seconds in _WITHOUT_CHECKPOINT.findall(log):
        at = midnight + int(hours) * 3600 + int(minutes) * 60 + int(seconds)
        at -= _DAY_S if at > now else 0
        crashes.append(Crash(at * 1000, (at + 1) * 1000 + LINGERING_MS))
    return crashes


def unexcused(
    attempts: Sequence[Attempt], cooldown_ms: int, crashes: Sequence[Crash]
) -> dict[RoomId, list[tuple[float, float]]]:
    """Early writes that no crash excuses: by room, the times of the write before and of this."""
    early: dict[RoomId, list[tuple[float, float]]] = defaultdict(list)
    last: dict[RoomId, float] = {}
    for attempt in sorted(attempts, key=lambda attempt: attempt.at_ms):
        before = last.get(attempt.room)
        if before is not None and attempt.at_ms - before < cooldown_ms - CLOCK_TOLERANCE_MS:
            early[attempt.room].append((before, attempt.at_ms))
        last[attempt.room] = attempt.at_ms
    in_order = sorted(crashes, key=lambda crash: crash.ends)
    found = {}
    for room, gaps in early.items():
        left = list(in_order)
        guilty = []
        for before, at in gaps:
            excuse = next((c for c in left if c.ends >= before and c.begins <= at), None)
            if excuse is None:
                guilty.append((before, at))
            else:
                left.remove(excuse)
        if guilty:
            found[room] = guilty
    return found


async def all_is_right(
    world: World,
    oracle: Oracle,
    *,
    crashes: Sequence[Crash] = (),
    outage: bool = False,
    seconds: float = 90.0,
    dead_letters: bool = True,
) -> None:
    """Require of a test's end all that is promised; wait for the rows and the lag.

    outage: the broker was away, so records may have been sent and written twice. dead_letters:
    False where topics were deleted, so that nobody knows what there should be.
    """
    await oracle.matches(world.table, seconds)
    await world.no_lag(seconds)
    attempts = await world.table.attempts()
    cooldown_ms = world.settings.cooldown_ms
    guilty = unexcused(attempts, cooldown_ms, crashes)
    assert not guilty, (
        f"{len(guilty)} rooms were written within their cooldown of {cooldown_ms} ms without a "
        f"crash that explains it, as {dict(list(guilty.items())[:SHOWN])}; crashes {crashes}"
    )
    strangers = [one for one in attempts if one.ts_ms > oracle.newest[one.room].ts_ms]
    assert not strangers, f"nobody has sent {strangers[:SHOWN]}"
    await world.table.never_went_back()
    if dead_letters:
        await dead_letters_are_complete(world, at_least_once=outage or bool(crashes))


async def dead_letters_are_complete(world: World, *, at_least_once: bool = False) -> None:
    """Require a dead letter of each broken record of the source topic, and of nothing else."""
    bounds = Bounds(world.settings.min_ts_ms, now_ms() + world.settings.max_future_ms)
    broken = set()
    for record in await read_topic(world.bootstrap_servers, world.topic):
        if record.value is not None and not _is_good(record.key, record.value, bounds):
            broken.add((record.partition, record.offset))
    found = [_origin(record.headers) for record in await world.dead_letters()]
    missing, made_up = broken - set(found), set(found) - broken
    assert not missing, f"{len(missing)} of {len(broken)} dead letters are missing: {missing}"
    assert not made_up, f"{len(made_up)} good records became dead letters: {made_up}"
    if not at_least_once:
        assert len(found) == len(set(found)), "dead letters have come twice"


def _is_good(key: bytes | None, value: bytes, bounds: Bounds) -> bool:
    try:
        heartbeat = decode(value, bounds)
    except Rejected:
        return False
    return key is None or key == room_key(heartbeat.hotel_id, heartbeat.room_id)


def _origin(headers: Iterable[tuple[str, bytes]]) -> tuple[int, int]:
    found = dict(headers)
    return int(found["source-partition"]), int(found["source-offset"])
