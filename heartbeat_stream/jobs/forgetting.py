"""Keeping memory and tables bounded: cached rooms are evicted, silent rooms expire.

Both look at a slice of the rooms at a time, and never at all of them.
"""

from typing import Final

from heartbeat_stream.core.latest import Shard
from heartbeat_stream.jobs.heartbeat_tables import (
    TombstoneDelta,
    read_stored,
    read_written,
    written_version,
)
from heartbeat_stream.streaming.checkpoint import Delta
from heartbeat_stream.streaming.tables import StateTable

__all__ = ["Evictor", "Expiry"]

_SLICE: Final = 2000
_EVICT_SLICE: Final = 10_000


class Evictor:
    """Forgets rooms that have nothing to write, beyond what memory is to hold.

    Goes round the rooms like the hand of a clock.
    """

    def __init__(self, cache_rooms: int) -> None:
        self._cache_rooms = cache_rooms
        self._hands: dict[int, list[bytes]] = {}

    def turn(self, shards: dict[int, Shard], pending: int) -> None:
        """One slice. ``pending`` rooms are in memory besides those that the cache may hold."""
        excess = sum(len(shard.rooms) for shard in shards.values()) - pending - self._cache_rooms
        for partition, shard in shards.items():
            if excess <= 0:
                return
            hand = self._hands.get(partition)
            if not hand:
                hand = self._hands[partition] = list(shard.rooms)
            for _ in range(min(_EVICT_SLICE, len(hand))):
                key = hand.pop()
                room = shard.rooms.get(key)
                if room is not None and room.clean:
                    del shard.rooms[key]
                    excess -= 1

    def drop(self, partition: int) -> None:
        self._hands.pop(partition, None)


class Expiry:
    """Takes rooms out of the tables whose newest heartbeat is too old, once it is written."""

    def __init__(self, latest: StateTable, written: StateTable, ttl_ms: int) -> None:
        """``ttl_ms`` 0: rooms stay for ever."""
        self._latest = latest
        self._written = written
        self._ttl_ms = ttl_ms
        self._after: dict[int, bytes | None] = {}
        self._expired: dict[int, dict[bytes, tuple[int, int]]] = {}
        self.rooms = 0

    def sweep(self, shard: Shard, now_ms: int) -> None:
        """Look at the next slice of a partition's table."""
        if not self._ttl_ms:
            return
        partition = shard.partition
        after = self._after.get(partition)
        count = 0
        for key, raw in self._latest.store.partitions[partition].scan(after):
            after = key
            count += 1
            self._consider(shard, key, raw, now_ms - self._ttl_ms)
            if count >= _SLICE:
                break
        self._after[partition] = after if count >= _SLICE else None

    def _consider(self, shard: Shard, key: bytes, raw: bytes, too_old: int) -> None:
        stored = read_stored(raw)
        if stored.ts_ms >= too_old:
            return
        raw_written = self._written.store.partitions[shard.partition].get(key)
        if raw_written is None or read_written(raw_written).ts_ms < stored.ts_ms:
            return  # still to be written
        room = shard.rooms.get(key)
        if room is not None:
            if not room.clean or room.ts_ms > stored.ts_ms:
                return
            del shard.rooms[key]
        versions = (stored.ts_ms, written_version(raw_written))
        self._expired.setdefault(shard.partition, {})[key] = versions

    def take(self, shard: Shard) -> list[Delta]:
        """What the next checkpoint is to take out of both tables."""
        expired = self._expired.pop(shard.partition, None)
        if not expired:
            return []
        # A room that has come back to life meanwhile is in memory again.
        gone = {key: versions for key, versions in expired.items() if key not in shard.rooms}
        self.rooms += len(gone)
        return [
            TombstoneDelta(table, shard.partition, {key: both[which] for key, both in gone.items()})
            for which, table in enumerate((self._latest, self._written))
        ]

    def drop(self, partition: int) -> None:
        self._after.pop(partition, None)
        self._expired.pop(partition, None)
