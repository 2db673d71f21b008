"""Taking rooms out of the tables, for all workers and their local copies.

A record that is merely deleted from a changelog would come back: a worker whose local copy still
has it takes the changelog for damaged, and fills it again. A tombstone is read by every copy. It
carries the version that it removes, so a newer heartbeat survives it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import islice

from heartbeat_stream.jobs.heartbeat_tables import tombstone
from heartbeat_stream.recovery.cluster import open_producer
from heartbeat_stream.recovery.tables import VERSIONS, Progress, read_tables
from heartbeat_stream.recovery.words import number_of
from heartbeat_stream.settings import Settings
from heartbeat_stream.streaming.producer import BatchProducer
from heartbeat_stream.streaming.store import Change
from heartbeat_stream.streaming.topics import TABLES, changelog_topic_name

__all__ = ["discard_tables", "remove"]

_SLICE = 2000


async def discard_tables(settings: Settings, progress: Progress) -> int:
    """Take every room out of both tables; how many there were.

    No worker of the group may be running. Cut off in the middle, it has removed some of the rooms,
    and removes the others when it is called again. Raises KafkaError, RecoveryError, StoreError.
    """
    rooms = 0
    async with open_producer(settings) as producer:
        async for partition in read_tables(settings, progress):
            counts = []
            # latest last: whoever is cut off in between leaves a room that is written once more.
            for table in reversed(TABLES):
                entries = partition.stores[table].scan()
                counts.append(await remove(settings, producer, table, partition.number, entries))
            rooms += max(counts)
            progress(f"{number_of(rooms, 'room')} removed")
    return rooms


async def remove(
    settings: Settings,
    producer: BatchProducer,
    table: str,
    partition: int,
    entries: Iterable[Change],
) -> int:
    """Write a tombstone for each of these entries of a table's partition; how many there were."""
    version = VERSIONS[table]
    changelog = changelog_topic_name(settings, table)
    removed = 0
    left = iter(entries)
    while part := list(islice(left, _SLICE)):
        records = [tombstone(key, version(value)) for key, value in part if value is not None]
        now = time.time_ns() // 1_000_000
        await producer.publish(changelog, partition, records, now)
        removed += len(records)
    return removed
