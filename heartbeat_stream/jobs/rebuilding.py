"""Getting a partition's rooms ready from its tables: what is pending enters the due index."""

import asyncio
from collections.abc import Callable
from typing import Final

from heartbeat_stream.core.latest import Shard
from heartbeat_stream.jobs.heartbeat_tables import find_rooms, read_stored, read_written
from heartbeat_stream.streaming.store import News, PartitionStore

__all__ = ["rebuild", "reconcile"]

#: Rooms looked at between two looks at the event loop.
_SLICE: Final = 2000


async def reconcile(
    shard: Shard, latest: PartitionStore, written: PartitionStore, now_ms: Callable[[], int]
) -> None:
    """The tables have learned something that memory does not know: keep the newer of both."""
    keys = list(shard.rooms)
    for start in range(0, len(keys), _SLICE):
        part = keys[start : start + _SLICE]
        for key, found in zip(part, find_rooms(latest, written, part), strict=True):
            room = shard.rooms.get(key)
            if room is not None:
                stored, last = found or (None, None)
                shard.reconcile(room, stored, last, now_ms())
        await asyncio.sleep(0)


async def rebuild(
    shard: Shard,
    latest: PartitionStore,
    written: PartitionStore,
    now_ms: Callable[[], int],
) -> None:
    """Bring into memory whatever is pending by the tables, in one pass over both.

    What must be written to a changelog again, by the stores' news, comes into memory, too, and is
    flagged for the next checkpoint. The news are taken in with that.
    """
    of_latest, of_written = latest.news, written.news
    rooms = shard.rooms
    writes = written.scan()
    write = next(writes, None)
    now = now_ms()
    for count, (key, raw) in enumerate(latest.scan()):
        if count % _SLICE == 0:
            await asyncio.sleep(0)
            now = now_ms()
        while write is not None and write[0] < key:
            write = next(writes, None)
        last = read_written(write[1]) if write is not None and write[0] == key else None
        again = of_latest.republish or key in of_latest.overtaken
        again_written = last is not None and (of_written.republish or key in of_written.overtaken)
        room = rooms.get(key)
        if room is None:
            stored = read_stored(raw)
            pending = last is None or stored.ts_ms > last.ts_ms
            if not pending and not again and not again_written:
                continue
            room = shard.restore(key, stored, last, now=now)
        if again:
            shard.note_changed(room)
        if again_written:
            shard.note_settled((room,))
    latest.news, written.news = News(), News()
