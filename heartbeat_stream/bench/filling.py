"""Filling a topic with a load before anything is measured."""

from __future__ import annotations

import time
from collections.abc import Callable

from heartbeat_stream.bench.load import VALUE_ENDS, Load, RollCall, key_of, value_start
from heartbeat_stream.local.record_sender import open_sender

__all__ = ["fill"]


async def fill(
    brokers: str,
    topic: str,
    load: Load | RollCall,
    *,
    keyed: bool,
    on_progress: Callable[[int], None],
) -> float:
    """Send all of a load to an existing topic; bytes per value. Raises SendError.

    keyed: by Kafka's default partitioner, as the product wants a keyed source; else to all
    partitions in turn, without a key.
    """
    starts = [value_start(room) for room in range(load.rooms)]
    keys = [key_of(room) if keyed else None for room in range(load.rooms)]
    sent = size = 0
    async with open_sender(brokers, topic, {}) as sender:
        for chunk in load.chunks():
            records = [
                (keys[room], b"%b%d%b" % (starts[room], ts_ms, VALUE_ENDS[ts_ms % 3]))
                for room, ts_ms in chunk
            ]
            await sender.send(records, int(time.time() * 1000))
            sent += len(records)
            size += sum(len(value) for _, value in records)
            on_progress(sent)
        await sender.flush()
    return size / sent
