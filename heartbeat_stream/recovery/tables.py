"""The two tables as their changelogs have them: what a worker without local files would recover.

Read by the workers' own reader into stores of their own, so that who wins is decided once and for
all in one place. The stores lie in a temporary directory (TMPDIR), a few partitions at a time.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from aiokafka.structs import TopicPartition

from heartbeat_stream.core.room import Stored, Written
from heartbeat_stream.jobs.heartbeat_tables import (
    LATEST,
    WRITTEN,
    latest_version,
    read_stored,
    read_written,
    written_version,
)
from heartbeat_stream.recovery.cluster import connection, partition_counts
from heartbeat_stream.recovery.errors import RecoveryError
from heartbeat_stream.recovery.scratch import scratch_directory
from heartbeat_stream.settings import Settings
from heartbeat_stream.streaming.changelog import ChangelogReader
from heartbeat_stream.streaming.store import PartitionStore, StoreOptions
from heartbeat_stream.streaming.tables import Version
from heartbeat_stream.streaming.topics import TABLES, changelog_topic_name

__all__ = ["VERSIONS", "Progress", "RoomState", "TablePartition", "count_partitions", "read_tables"]

#: Says how far something has come; may be called as often as one likes.
Progress = Callable[[str], None]

VERSIONS: dict[str, Version] = {LATEST: latest_version, WRITTEN: written_version}

#: Each costs some megabytes of memory, and its size on disk.
_PARTITIONS_AT_ONCE = 8
_CACHE_MB = 16


class RoomState(NamedTuple):
    """A room as the tables hold it; ``written`` is None where it was never written."""

    key: bytes
    stored: Stored
    written: Written | None

    @property
    def pending(self) -> bool:
        """Whether its newest heartbeat is still to be written."""
        return self.written is None or self.written.ts_ms < self.stored.ts_ms


class TablePartition(NamedTuple):
    """One partition of the tables. Good until the next one is asked for."""

    number: int
    stores: dict[str, PartitionStore]

    def rooms(self) -> Iterator[RoomState]:
        """All rooms of ``latest``, ordered by key. Needs both tables."""
        writes = self.stores[WRITTEN].scan()
        write = next(writes, None)
        for key, raw in self.stores[LATEST].scan():
            while write is not None and write[0] < key:
                write = next(writes, None)
            last = read_written(write[1]) if write is not None and write[0] == key else None
            yield RoomState(key, read_stored(raw), last)


async def count_partitions(settings: Settings) -> int:
    """How many partitions the tables have. Raises RecoveryError where there are no tables."""
    changelogs = [changelog_topic_name(settings, table) for table in TABLES]
    counts = await partition_counts(settings, changelogs)
    if len(set(counts.values())) != 1:
        raise RecoveryError(
            f"the changelogs have different numbers of partitions ({counts}): see "
            "`heartbeat-stream check`"
        )
    return counts[changelogs[0]]


async def read_tables(
    settings: Settings,
    progress: Progress,
    *,
    tables: Sequence[str] = TABLES,
    partitions: Iterable[int] | None = None,
) -> AsyncGenerator[TablePartition]:
    """The tables' partitions one by one, all of them unless told which.

    Raises RecoveryError, KafkaError and StoreError.
    """
    wanted = list(range(await count_partitions(settings)) if partitions is None else partitions)
    reader = ChangelogReader(connection(settings))
    records = 0

    def count(more: int) -> None:
        nonlocal records
        records += more
        progress(f"{records:,} records of the changelogs read")

    for start in range(0, len(wanted), _PARTITIONS_AT_ONCE):
        part = wanted[start : start + _PARTITIONS_AT_ONCE]
        with scratch_directory() as directory:
            opened = _open(directory, part, tables)
            try:
                await reader.catch_up(
                    {
                        TopicPartition(changelog_topic_name(settings, table), number): (
                            store,
                            VERSIONS[table],
                        )
                        for (number, table), store in opened.items()
                    },
                    count,
                )
                for number in part:
                    yield TablePartition(number, {table: opened[number, table] for table in tables})
            finally:
                for store in opened.values():
                    store.close()


def _open(
    directory: Path, partitions: list[int], tables: Sequence[str]
) -> dict[tuple[int, str], PartitionStore]:
    options = StoreOptions(_CACHE_MB)
    return {
        (number, table): PartitionStore(directory / f"{table}-{number}", options, "recovery")
        for number in partitions
        for table in tables
    }
