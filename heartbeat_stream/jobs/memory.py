"""What a job remembers of one partition, for as long as it counts: a table that forgets.

An entry is in memory from the moment at which it is put until the checkpoint after the one that
makes it durable, and on disk from then on. A look-up asks memory first: so a twin that comes right
behind its like meets it, long before anything is durable.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final

from heartbeat_stream.core.expiring import Clock, Entry, expires_of, version_of, wrap
from heartbeat_stream.jobs.heartbeat_tables import TombstoneDelta
from heartbeat_stream.streaming.checkpoint import Delta
from heartbeat_stream.streaming.producer import OutRecord
from heartbeat_stream.streaming.store import News, PartitionStore, place
from heartbeat_stream.streaming.tables import StateTable

__all__ = ["Memory"]

#: Entries looked at in a sweep, at least: a millisecond.
_SWEEP: Final = 200
_SLICE: Final = 2000


class Memory:
    """The entries of one partition of one table. Not durable before the next checkpoint ends."""

    def __init__(self, table: StateTable, partition: int) -> None:
        self.table = table
        self.partition = partition
        self.clock = Clock()
        self.put_count = 0
        self.expired_count = 0
        self._changed: dict[bytes, bytes] = {}
        #: What the running checkpoint writes, or the last one has written.
        self._flushed: dict[bytes, bytes] = {}
        self._expired: dict[bytes, int] = {}
        #: Those of the running checkpoint, or of the last one.
        self._leaving: dict[bytes, int] = {}
        self._swept_puts = 0
        self._store: PartitionStore  # there from the first load on
        self._at: bytes | None = None
        #: The earliest time of the entries that the sweep has come by while they were on their way
        #: to the disk.
        self._again_ms: int | None = None

    def get(self, key: bytes) -> Entry | None:
        """What is held under a key, also where its time is over. Raises StoreError."""
        value = self.find(key)
        return None if value is None else Entry.read(value)

    def find(self, key: bytes) -> bytes | None:
        """The same as it is stored: see :func:`~heartbeat_stream.core.expiring.wrap`."""
        return self._changed.get(key) or self._flushed.get(key) or self._store.get(key)

    def scan(self) -> Iterator[tuple[bytes, bytes]]:
        """All keys with their payloads, in no order: for the moment after :meth:`load`."""
        for key, value in self._store.scan():
            if key not in self._changed:
                yield key, Entry.read(value).payload
        for key, value in self._changed.items():
            yield key, Entry.read(value).payload

    def put(self, key: bytes, version: int, expires_ms: int, payload: bytes) -> None:
        """Hold this under a key, in place of what was held there."""
        self.hold(key, wrap(version, expires_ms, payload))

    def hold(self, key: bytes, value: bytes) -> None:
        """The same for a value that is wrapped already, as for several keys."""
        self._changed[key] = value
        if self._expired:
            self._expired.pop(key, None)
        self.put_count += 1

    async def load(self, *, keep: bool) -> None:
        """The table is up to date. Unless it is to be kept, what is not durable is forgotten: the
        records that it came from come again."""
        if not keep:
            self._changed.clear()
            self._flushed.clear()
        self._expired.clear()
        self._leaving.clear()
        self._at = self._again_ms = None
        self._store = store = self.table.store.partitions[self.partition]
        news = store.news
        if news.republish:
            for count, (key, value) in enumerate(store.scan()):
                if count % _SLICE == 0:
                    await asyncio.sleep(0)
                self._changed.setdefault(key, value)
        else:
            overtaken = list(news.overtaken)
            for key, found in zip(overtaken, store.get_many(overtaken), strict=True):
                if found is not None:
                    self._changed.setdefault(key, found)
        store.news = News()

    def sweep(self) -> None:
        """Look at a slice of the expiry index for entries whose time is over.

        It is as large as what was put since the last one, so that what leaves keeps up with what
        comes; each entry is met twice, the second time to see that it has left. Raises StoreError.
        """
        limit = _SWEEP + 3 * (self.put_count - self._swept_puts)
        self._swept_puts = self.put_count
        due = self._store.due(self.clock.now_ms, min(limit, _SLICE), self._at)
        for key, value in due.entries:
            if key in self._leaving:
                continue
            if key not in self._changed and key not in self._flushed:
                self._expired[key] = version_of(value)
            elif self._again_ms is None:
                self._again_ms = expires_of(value)
        self._at = due.at

    def deltas(self) -> list[Delta]:
        """What changed since the last call."""
        changed, self._changed = self._changed, {}
        expired, self._expired = self._expired, {}
        if self._leaving:
            self._at = None  # the rows of what has left with the last checkpoint are empty now
        self._leaving = expired
        self._flushed = changed
        self.expired_count += len(expired)
        if self._again_ms is not None:
            again = place(self._again_ms)
            self._at = min(again, self._at) if self._at is not None else None
            self._again_ms = None
        return [
            _ChangedDelta(self, list(changed.items())),
            _ExpiredDelta(self, expired),
        ]

    def take_back(self, entries: Sequence[tuple[bytes, bytes]]) -> None:
        """The checkpoint failed: these count as changed again, unless they have changed since."""
        for key, value in entries:
            self._changed.setdefault(key, value)

    def sweep_again(self) -> None:
        """Begin the sweep anew: what it found has not left the table."""
        self._leaving = {}
        self._at = None


class _ChangedDelta:
    """Entries that were put since the last checkpoint."""

    def __init__(self, memory: Memory, entries: list[tuple[bytes, bytes]]) -> None:
        self.table = memory.table
        self.partition = memory.partition
        self._memory = memory
        self._entries = entries

    def __len__(self) -> int:
        return len(self._entries)

    def encode(self, start: int, stop: int) -> list[OutRecord]:
        return [OutRecord(key, value) for key, value in self._entries[start:stop]]

    def undo(self) -> None:
        self._memory.take_back(self._entries)


class _ExpiredDelta(TombstoneDelta):
    """Entries whose time is over."""

    def __init__(self, memory: Memory, versions: dict[bytes, int]) -> None:
        super().__init__(memory.table, memory.partition, versions)
        self._memory = memory

    def undo(self) -> None:
        self._memory.sweep_again()
