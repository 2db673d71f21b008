"""A job that decides about each record by what it remembers of earlier ones with the same key.

The agent ``ingest`` reads the source and forwards each record to the partition of its key; the
agent ``absorb`` takes them up there, in order, and decides. What is put out goes on its way before
the loop is given back, so that a checkpoint, which settles all outputs first, never makes durable
that a record was seen whose output is not.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, cast

from faust.types import TP, Message

from heartbeat_stream.complaints import Complaints
from heartbeat_stream.core.expiring import expires_of, version_of
from heartbeat_stream.core.identity.layer import Layer
from heartbeat_stream.core.identity.tally import LayerTally
from heartbeat_stream.core.partition import partition_for
from heartbeat_stream.core.reasons import Rejected
from heartbeat_stream.jobs.job import Handle, House, TopicGrown
from heartbeat_stream.jobs.memory import Memory
from heartbeat_stream.jobs.outgoing import PartitionUnit, Waiting
from heartbeat_stream.streaming.checkpoint import Delta, Unit
from heartbeat_stream.streaming.fetching import FetchedRecord
from heartbeat_stream.streaming.forwarding import Arrival, arrived, forward, received
from heartbeat_stream.streaming.producer import OutRecord
from heartbeat_stream.streaming.store import StoreDamaged, StoreError
from heartbeat_stream.streaming.tables import StateTable
from heartbeat_stream.streaming.topics import JobTopics

__all__ = ["StreamJob"]

logger = logging.getLogger(__name__)

#: Records decided about between two looks at the event loop: some milliseconds.
_SLICE: Final = 500
#: Keys whose partition is remembered.
_MOST_ROUTES: Final = 100_000
_LEASE_POLL_S: Final = 0.05
#: Outputs held for a transaction beyond which reading waits.
_MOST_WAITING: Final = 100_000


class StreamJob(ABC):
    """What such jobs have in common. A job says how a record is routed and what is decided."""

    name: ClassVar[str]
    table: ClassVar[str]
    outcomes: ClassVar[tuple[str, ...]]
    """The names in ``counts``: what can become of a record."""

    def __init__(self, house: House, topics: JobTopics, partitions: int) -> None:
        """``partitions``: how many the table has, and so the topic that feeds it."""
        self._table = house.table(self.table, version_of, partitions, expires_of)
        self.tables: Sequence[StateTable] = (self._table,)
        self.counts: Counter[str] = Counter()
        self.events: Counter[str] = Counter()
        self._gone_put = self._gone_expired = 0
        self.house = house
        self.topics = topics
        self._partitions = partitions
        self._memories: dict[int, Memory] = {}
        self._owned: set[int] = set()
        self._parked: set[int] = set()
        self._outgoing: dict[tuple[str, int], list[OutRecord]] = {}
        self._routes: dict[bytes, int] = {}
        self._complaints = Complaints(logger)
        #: Held for transactions, where there are some.
        self._waiting: Waiting | None = None
        self._room = asyncio.Event()
        if house.transactions is not None:
            self._waiting = Waiting()
            house.checkpointer.transact(house.transactions, self._units, self._forget)

    # -- what a job says -------------------------------------------------------------------------

    @abstractmethod
    def route(self, value: bytes) -> bytes:
        """The key by which a record is placed. Raises Rejected for one that has none."""

    def route_of(self, record: FetchedRecord) -> bytes:
        """The same, for a job that goes by more than the value. It is no tombstone."""
        return self.route(record.value or b"")

    @abstractmethod
    def decide(self, memory: Memory, arrival: Arrival) -> None:
        """Decide about a record, remember it, and put out what comes of it with :meth:`emit`.

        Raises Rejected: it becomes a dead letter. Must not wait for anything.
        """

    def loaded(self, memory: Memory) -> None:  # noqa: B027
        """A partition is ours, with what is remembered of it."""

    def flush(self) -> None:  # noqa: B027
        """A slice of records has been decided about: hand over what is not a topic's."""

    async def room(self) -> None:  # noqa: B027
        """Wait while too much is on its way to what is no topic."""

    def due(self, memory: Memory) -> None:  # noqa: B027
        """Do what is due by the clock; twenty times a second."""

    # -- putting out -----------------------------------------------------------------------------

    def emit(self, topic: str, partition: int, record: OutRecord) -> None:
        """Put a record out to a topic, behind all that was put out to that partition before."""
        found = self._outgoing.get((topic, partition))
        if found is None:
            found = self._outgoing[topic, partition] = []
        found.append(record)

    def partition_of(self, key: bytes, partitions: int) -> int:
        """The partition of a key, of so many."""
        spread = self._routes.get(key)
        if spread is None:
            if len(self._routes) >= _MOST_ROUTES:
                self._routes.clear()
            # The hash before it is cut down to a number of partitions: topics have several.
            spread = self._routes[key] = partition_for(key, 1 << 31)
        return spread % partitions

    def _send(self, cause: TP) -> None:
        """Have what was put out go on its way; a record of this partition was the cause."""
        outgoing, self._outgoing = self._outgoing, {}
        if self._waiting is not None:
            self._waiting.add(cause, outgoing)
        else:
            for (topic, partition), records in outgoing.items():
                self.house.lanes.put(topic, partition, records)
        self.flush()

    async def _until_there_is_room(self) -> None:
        while self._waiting is not None and self._waiting.count > _MOST_WAITING:
            self._room.clear()
            await self._room.wait()
        await self.house.lanes.room()
        await self.room()

    # -- transactions ----------------------------------------------------------------------------

    def _units(self) -> Sequence[Unit]:
        """What each partition has caused since the last checkpoint."""
        assert self._waiting is not None
        self._room.set()
        state = self.topics.state
        units = [
            PartitionUnit(TP(state, partition), self._waiting, memory.deltas())
            for partition, memory in self._memories.items()
            if partition not in self._parked
        ]
        units += [
            PartitionUnit(cause, self._waiting, [])
            for cause in self._waiting.causes
            if cause.topic != state
        ]
        return units

    def _forget(self, tps: set[TP]) -> None:
        assert self._waiting is not None
        for tp in tps:
            self._waiting.take(tp)
        self._room.set()

    # -- agents ----------------------------------------------------------------------------------

    def agents(self) -> Mapping[str, Handle]:
        if self.topics.keyed:
            return {self.topics.state: self.absorb}
        return {self.topics.state: self.absorb, self.topics.source.name: self.ingest}

    async def ingest(self, message: Message) -> None:
        """Forward a batch of the source, record by record, to the partitions of their keys."""
        records = cast("Sequence[FetchedRecord]", message.value)
        rejected = []
        self.counts["records"] += len(records)
        for record in records:
            if record.value is None:
                self.counts["tombstones"] += 1
                continue
            try:
                key = self.route_of(record)
            except Rejected as why:
                rejected.append((arrived(record, message.partition), why))
                continue
            forwarded = forward(record, message.partition, key)
            self.emit(self.topics.repartition, self.partition_of(key, self._partitions), forwarded)
        if self._waiting is not None:
            rejected = self._emit_rejected(rejected)
        self._send(message.tp)
        if self._waiting is None:
            await self._reject(rejected)
        self.house.checkpointer.hold(message)
        await self._until_there_is_room()

    async def absorb(self, message: Message) -> None:
        """Decide about a batch of records that stand in the partition of their keys."""
        partition = message.partition
        if partition >= self._partitions:
            raise TopicGrown(message.topic, self._partitions)
        while not self.house.lease.held and partition in self._owned:
            await asyncio.sleep(_LEASE_POLL_S)  # another worker may have it: wait to be told
        memory = self._memories.get(partition)
        records = cast("Sequence[FetchedRecord]", message.value)
        # A transaction covers whole batches: nothing may come between.
        size = _SLICE if self._waiting is None else len(records)
        for start in range(0, len(records), size):
            if start:
                await asyncio.sleep(0)
            if memory is None or partition not in self._owned:
                return  # a rebalance has come between: it comes again where it belongs
            rejected = self._decide(memory, records[start : start + size])
            if rejected:
                await self._reject(rejected)
        self.house.checkpointer.hold(message)
        await self._until_there_is_room()

    def _decide(
        self, memory: Memory, records: Sequence[FetchedRecord]
    ) -> list[tuple[Arrival, Rejected]]:
        keyed, partition, clock = self.topics.keyed, memory.partition, memory.clock
        now = self.house.now_ms()
        rejected = []
        if keyed:
            self.counts["records"] += len(records)
        for record in records:
            if record.value is None:
                self.counts["tombstones"] += 1
                continue
            arrival = arrived(record, partition) if keyed else received(record)
            try:
                self.decide(memory, arrival)
            except Rejected as why:
                rejected.append((arrival, why))
            if arrival.at_ms > clock.now_ms:
                clock.see(arrival.at_ms, now)
        if self._waiting is not None:
            rejected = self._emit_rejected(rejected)
        self._send(TP(self.topics.state, partition))
        return rejected

    def _emit_rejected(
        self, rejected: Sequence[tuple[Arrival, Rejected]]
    ) -> list[tuple[Arrival, Rejected]]:
        """Put dead letters out as what they are caused by is; none is left."""
        self.counts["rejected"] += len(rejected)
        topic = self.topics.source.name
        for one, why in rejected:
            letter = self.house.dead_letters.letter(
                one.key, one.value, why, topic, one.partition, one.offset
            )
            self.emit(*letter)
        return []

    async def _reject(self, rejected: Sequence[tuple[Arrival, Rejected]]) -> None:
        self.counts["rejected"] += len(rejected)
        topic, put = self.topics.source.name, self.house.dead_letters.put
        for one, why in rejected:
            await put(one.key, one.value, why, topic, one.partition, one.offset)

    # -- timers ----------------------------------------------------------------------------------

    def tick(self) -> None:
        for partition in self._owned:
            memory = self._memories[partition]
            self._sweep(memory)
            self.due(memory)
            self._send(TP(self.topics.state, partition))

    def _sweep(self, memory: Memory) -> None:
        try:
            memory.sweep()
        except StoreDamaged:
            raise
        except StoreError as exc:  # a full disk, which is looked at again
            self._complaints.warning("what has expired stays for now: %s", exc)

    def keep_house(self) -> None:  # noqa: B027
        """Nothing: what is old leaves with each tick."""

    def trouble(self) -> Mapping[str, str | None]:
        return {}

    async def finish(self, timeout_s: float) -> None:  # noqa: B027
        """Nothing is due that the last checkpoint does not wait for."""

    async def stop(self) -> None:  # noqa: B027
        """Nothing is open."""

    # -- what the engine asks --------------------------------------------------------------------

    async def load(self, partition: int) -> None:
        memory = self._memories.get(partition)
        if memory is None:
            memory = self._memories[partition] = Memory(self._table, partition)
        await memory.load(keep=partition in self._owned)
        self.loaded(memory)
        self._parked.discard(partition)

    def own(self, partition: int) -> None:
        self._owned.add(partition)

    async def quiesce(self, timeout_s: float) -> None:
        self._owned.clear()

    def park(self, partition: int) -> None:
        self._owned.discard(partition)
        self._parked.add(partition)

    def drop(self, partition: int) -> None:
        self.park(partition)
        gone = self._memories.pop(partition, None)
        if gone is not None:
            self._gone_put += gone.put_count
            self._gone_expired += gone.expired_count
        self._parked.discard(partition)

    def deltas(self) -> list[Delta]:
        deltas: list[Delta] = []
        if self._waiting is not None:
            return deltas  # they are part of the partitions' transactions
        for partition, memory in self._memories.items():
            if partition not in self._parked:
                deltas += memory.deltas()
        return deltas

    # -- looking ---------------------------------------------------------------------------------

    @property
    def layers(self) -> Mapping[Layer, LayerTally]:
        """What each layer has done, of a job that has some."""
        return {}

    @property
    def entries_put(self) -> int:
        """Entries put into the table, of partitions that are gone, too."""
        return self._gone_put + sum(one.put_count for one in self._memories.values())

    @property
    def entries_expired(self) -> int:
        """Entries that have left it because their time was over."""
        return self._gone_expired + sum(one.expired_count for one in self._memories.values())

    def owns(self, partition: int) -> bool:
        return partition in self._owned

    def look_up(self, table: str, key: bytes) -> Any | None:
        memory = self._memories.get(partition_for(key, self._partitions))
        entry = memory.get(key) if memory is not None else None
        if entry is None:
            return None
        return {"version": entry.version, "expires_ms": entry.expires_ms, "value": entry.payload}
