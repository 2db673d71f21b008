"""Faust tables that are written back at checkpoints, a partition at a time.

Faust writes a table through, key by key, and only from within an agent. These are read like any
Faust table, but written only by a checkpoint: first to the changelog, then to local disk.

Relied upon in faust-streaming 0.15.3: a table makes its store in ``_new_store``.
``tests/integration/test_tables.py`` breaks where that changes.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

from faust.stores.base import SerializedStore
from faust.tables.table import Table
from faust.types import TP

from heartbeat_stream.core.partition import partition_for
from heartbeat_stream.streaming.store import PartitionStore, StoreOptions

__all__ = ["StateTable", "TableStore", "Version"]

#: Answers a number by which of two values of a key the greater is to be kept.
Version = Callable[[bytes], int]


class TableStore(SerializedStore[bytes, bytes]):
    """The partitions of a table that this worker holds."""

    def __init__(
        self,
        *args: Any,
        directory: Path,
        options: StoreOptions,
        expires: Version | None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._directory = directory
        self._expires = expires
        self._store_options = options
        self.partitions: dict[int, PartitionStore] = {}

    def open(self, partition: int) -> PartitionStore:
        """The store of a partition, opened where it is not yet. Raises StoreError."""
        store = self.partitions.get(partition)
        if store is None:
            path = self._directory / f"{self.table_name}-{partition}"
            # With another number of partitions, other rooms belong in here.
            identity = f"{self.app.conf.id} {self.table_name} {partition}/{self.table.partitions}"
            store = PartitionStore(path, self._store_options, identity, self._expires)
            self.partitions[partition] = store
        return store

    def close(self, partition: int) -> None:
        store = self.partitions.pop(partition, None)
        if store is not None:
            store.close()

    def close_all(self) -> None:
        for partition in list(self.partitions):
            self.close(partition)

    # -- what Faust asks -------------------------------------------------------------------------

    def persisted_offset(self, tp: TP) -> int | None:
        store = self.partitions.get(tp.partition)
        return store.position.offset if store is not None and store.position else None

    def _find(self, key: bytes) -> PartitionStore | None:
        return self.partitions.get(partition_for(key, self.table.partitions or 1))

    def _get(self, key: bytes) -> bytes | None:
        store = self._find(key)
        return store.get(key) if store is not None else None

    def _contains(self, key: bytes) -> bool:
        return self._get(key) is not None

    def _iteritems(self) -> Iterator[tuple[bytes, bytes]]:
        for store in list(self.partitions.values()):
            yield from store.scan()

    def _iterkeys(self) -> Iterator[bytes]:
        return (key for key, _ in self._iteritems())

    def _itervalues(self) -> Iterator[bytes | None]:
        return (value for _, value in self._iteritems())

    def _size(self) -> int:
        return sum(1 for _ in self._iterkeys())

    def _set(self, key: bytes, value: bytes | None) -> None:
        raise TypeError(f"the table {self.table_name} is written by checkpoints only")

    def _del(self, key: bytes) -> None:
        self._set(key, None)

    def _clear(self) -> None:
        raise TypeError(f"the table {self.table_name} is written by checkpoints only")

    # Faust asks every table for these two; nothing here calls them.
    async def backup_partition(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError("the changelog is the backup")

    def restore_backup(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError("the changelog is the backup")

    def reset_state(self) -> None:
        for store in self.partitions.values():
            store.discard("a reset was asked for")


class StateTable(Table[bytes, bytes]):
    """A table with raw keys and values, whose values have a version.

    ``version`` orders the values of a key: the greatest is the one to keep, whatever the order in
    the changelog. That is what makes the late writes of a worker that lost its partition harmless.
    ``expires`` tells until when a value counts, of a table that forgets.
    """

    def __init__(
        self,
        *args: Any,
        version: Version,
        directory: Path,
        store_options: StoreOptions,
        expires: Version | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, key_type=bytes, value_type=bytes, **kwargs)
        self.version = version
        self._expires = expires
        self._directory = directory
        self._store_options = store_options

    def _new_store(self) -> TableStore:
        return TableStore(
            "rocksdb://",
            self.app,
            self,
            table_name=self.name,
            key_type=self.key_type,
            value_type=self.value_type,
            key_serializer=self.key_serializer,
            value_serializer=self.value_serializer,
            directory=self._directory,
            options=self._store_options,
            expires=self._expires,
        )

    @property
    def store(self) -> TableStore:
        return cast(TableStore, self.data)

    @property
    def changelog(self) -> str:
        """The name of the changelog topic."""
        name: str = self.changelog_topic.get_topic_name()
        return name
