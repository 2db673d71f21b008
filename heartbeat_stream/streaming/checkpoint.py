"""The order in which durability happens.

1. what the events have caused elsewhere (dead letters, forwarded records) is acknowledged;
2. the state that they changed is in the changelog, acknowledged by the broker;
3. it is on local disk, which thereby never knows more than the changelog;
4. the events are acknowledged, in offset order per partition;
5. the offsets are committed.

A crash between any two of these repeats work and loses none.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

import msgspec
from faust.types import TP, Message

from heartbeat_stream.distribution import SECONDS, Distribution
from heartbeat_stream.lag import Place
from heartbeat_stream.streaming.producer import BatchProducer, Outbox, OutRecord, Span
from heartbeat_stream.streaming.store import Position
from heartbeat_stream.streaming.tables import StateTable
from heartbeat_stream.streaming.transactions import Parcel, Transaction, Transactions

__all__ = ["Acknowledger", "Checkpointer", "Delta", "Unit"]

logger = logging.getLogger(__name__)

#: Keys encoded between two looks at the event loop, and so of one batch.
_SLICE = 1000
#: Keys written to disk between two: a millisecond.
_WRITE_SLICE = 250
#: Records on their way from the changelog to the disk at a time, which are some megabytes, however
#: many keys have changed: Python does not give back all that it needed for a moment.
_ROUND = 10_000
_ROUNDS = 5


async def _breathe() -> None:
    """Give the event loop back for some rounds: a record passes through several on its way, and
    is not to wait for a slice in each of them."""
    for _ in range(_ROUNDS):
        await asyncio.sleep(0)


class Delta(Protocol):
    """What changed of one partition of one table since the last checkpoint."""

    table: StateTable
    partition: int

    def __len__(self) -> int: ...

    def encode(self, start: int, stop: int) -> list[OutRecord]:
        """The current state of some of the keys, each of which counts as clean from now on."""

    def undo(self) -> None:
        """The checkpoint failed: all keys count as changed again."""


class Unit(Protocol):
    """What one partition of a topic has caused, to become visible in one transaction."""

    tp: TP
    parcels: list[Parcel]
    deltas: Sequence[Delta]

    def undo(self) -> None:
        """It did not: all of it is to be done by the next checkpoint."""


class Part(NamedTuple):
    """A stretch of a delta's keys."""

    delta: Delta
    start: int
    stop: int

    @property
    def is_last(self) -> bool:
        return self.stop == len(self.delta)


#: A part of a delta, its records, and where they stand in the changelog.
Published = tuple[Part, list[OutRecord], list[Span]]


class Acknowledger(Protocol):
    """The part of a consumer that a checkpoint needs."""

    def ack(self, message: Message) -> bool: ...

    async def commit(self) -> bool: ...


class Checkpointer:
    """Holds events back until what they did is durable. One checkpoint runs at a time."""

    def __init__(
        self,
        producer: BatchProducer,
        outbox: Outbox,
        consumer: Acknowledger,
        now_ms: Callable[[], int],
    ) -> None:
        self._producer = producer
        self._settle: list[Callable[[], Awaitable[None]]] = [outbox.settled]
        self._consumer = consumer
        self._now_ms = now_ms
        self._transactions: Transactions | None = None
        self._units: list[Callable[[], Sequence[Unit]]] = []
        self._forgetting: list[Callable[[set[TP]], None]] = []
        self._held: dict[TP, list[Message]] = {}
        self._running = asyncio.Lock()
        #: The offset that the next record of a changelog partition gets if nobody else writes.
        self.expected: dict[tuple[str, int], int] = {}
        #: Changelog partitions in which somebody else has written since the last look.
        self.intruded: set[tuple[str, int]] = set()
        #: The last record of each partition that an agent has worked on.
        self.handled: dict[TP, Place] = {}
        self.durations = Distribution(SECONDS)
        self.records = 0
        self.completed = 0
        self.failed = 0

    def waits_for(self, settled: Callable[[], Awaitable[None]]) -> None:
        """Also await this before anything becomes durable: it returns when all that was put out
        before its call has landed, and raises what keeps it from landing for good."""
        # What it turns away becomes a dead letter, which is awaited after it.
        self._settle.insert(0, settled)

    def transact(
        self,
        transactions: Transactions,
        units: Callable[[], Sequence[Unit]],
        forget: Callable[[set[TP]], None],
    ) -> None:
        """Also run a transaction for each of these, taken when a checkpoint begins.

        ``forget`` is told of partitions that are gone, with what was held of them.
        """
        self._transactions = transactions
        self._units.append(units)
        self._forgetting.append(forget)

    def hold(self, message: Message) -> None:
        """An event has been worked on: acknowledge it with the next checkpoint."""
        message.value = None  # the records themselves are no longer needed
        self.handled[message.tp] = Place(message.offset, int(message.timestamp * 1000))
        self._held.setdefault(message.tp, []).append(message)

    def forget(self, tps: set[TP]) -> None:
        """These partitions are gone: what was not acknowledged is delivered to whoever has them."""
        for tp in tps:
            self._held.pop(tp, None)
            self.handled.pop(tp, None)
        for forget in self._forgetting:
            forget(tps)

    @property
    def running(self) -> bool:
        """Whether one is being made: what it has encoded may not be on disk yet."""
        return self._running.locked()

    @property
    def held(self) -> int:
        return sum(map(len, self._held.values()))

    async def run(self, collect: Callable[[], Sequence[Delta]]) -> None:
        """Make everything durable that was worked on before this call.

        Raises what the broker or the disk raise; everything stays to be done by the next
        checkpoint then, as it does when this is cancelled.
        """
        async with self._running:
            started = time.perf_counter()
            held, self._held = self._held, {}
            deltas = collect()
            units = [unit for collect_units in self._units for unit in collect_units()]
            done: set[int] = set()
            try:
                for settled in self._settle:
                    await settled()
                await self._write(deltas)
                for unit in units:
                    await self._transact(unit, held.get(unit.tp))
                    done.add(id(unit))
            except BaseException:  # cancelled, too: nothing of it counts as durable
                self.failed += 1
                for delta in deltas:
                    delta.undo()
                for unit in units:
                    if id(unit) not in done:
                        unit.undo()
                for tp, later in self._held.items():
                    held.setdefault(tp, []).extend(later)
                self._held = held
                raise
            for messages in held.values():
                for message in messages:
                    self._consumer.ack(message)
            self.records += sum(map(len, deltas))
            self.records += sum(len(delta) for unit in units for delta in unit.deltas)
            self.durations.observe(time.perf_counter() - started)
            self.completed += 1
        await self._consumer.commit()

    async def _transact(self, unit: Unit, held: Sequence[Message] | None) -> None:
        """What was held of the partition is covered by the transaction, offset and all."""
        whole = [Part(delta, 0, len(delta)) for delta in unit.deltas if len(delta)]
        encoded = [(part, part.delta.encode(part.start, part.stop)) for part in whole]
        if not unit.parcels and not encoded:
            return  # its offset is committed as others are
        transaction = Transaction(
            unit.tp,
            unit.parcels,
            [(part.delta.table.changelog, part.delta.partition, rows) for part, rows in encoded],
            held[-1].offset + 1 if held else None,
        )
        assert self._transactions is not None
        written = await self._transactions.run(transaction, self._now_ms())
        unit.parcels = []  # visible, whatever the disk says of the rest
        for (part, records), (_, spans) in zip(encoded, written, strict=True):
            await self._keep(part, records, spans)
        for where in {_where(part.delta) for part in whole}:
            if where in self.expected:
                self.expected[where] += 1  # the marker that ends the transaction

    async def _write(self, deltas: Sequence[Delta]) -> None:
        for parts in _rounds(deltas):
            written, failure = await self._publish_all(parts)
            if failure is not None:
                # What the others have written is known to be ours. It is written once more, too.
                for part, _, spans in written:
                    self._follow(_where(part.delta), spans)
                raise failure
            for part, records, spans in written:
                await self._keep(part, records, spans)

    async def _publish_all(
        self, parts: Sequence[Part]
    ) -> tuple[list[Published], BaseException | None]:
        """What is in the changelogs now, and what kept the rest from it, if anything did.

        Nothing is under way any more when this returns, also where one of many has failed.
        """
        pending: list[asyncio.Task[Published]] = []
        failure: BaseException | None = None
        try:
            for part in parts:
                pending.append(await self._publish(part))
        except Exception as exc:
            failure = exc
        except BaseException:  # cancelled: nothing is to be under way any more
            for task in pending:
                task.cancel()
            raise
        written = []
        for outcome in await asyncio.gather(*pending, return_exceptions=True):
            if isinstance(outcome, BaseException):
                failure = failure or outcome
            else:
                written.append(outcome)
        return written, failure

    async def _publish(self, part: Part) -> asyncio.Task[Published]:
        delta = part.delta
        topic, partition, now = delta.table.changelog, delta.partition, self._now_ms()
        records: list[OutRecord] = []
        sent = []
        for start in range(part.start, part.stop, _SLICE):
            encoded = delta.encode(start, min(start + _SLICE, part.stop))
            records += encoded
            sent += await self._producer.enqueue(topic, partition, encoded, now)
            await _breathe()

        async def acknowledged() -> Published:
            spans = await self._producer.collect(topic, partition, sent, now)
            return part, records, spans

        return asyncio.create_task(acknowledged())

    async def _keep(self, part: Part, records: list[OutRecord], spans: list[Span]) -> None:
        delta = part.delta
        store = delta.table.store.partitions.get(delta.partition)
        if store is None:
            return  # lost meanwhile: whoever has it now reads the changelog
        position = self._follow(_where(delta), spans)
        for start in range(0, len(records), _WRITE_SLICE):
            some = records[start : start + _WRITE_SLICE]
            store.write([(record.key or b"", record.value) for record in some])
            await _breathe()
        if position is not None:
            # What was to be written again is among what a whole delta writes.
            was = store.position
            first = store.log_start if part.is_last or was is None else was.first
            store.write([], msgspec.structs.replace(position, first=first))

    def _follow(self, where: tuple[str, int], spans: list[Span]) -> Position | None:
        """Where the changelog ends now, if nobody else has written to it.

        Where the disk then refuses the records, that is true all the same: the next checkpoint
        writes them to both once more.
        """
        position = None
        for span in spans:
            if span.first_offset != self.expected.get(where) or where in self.intruded:
                # The local copy stays where it was complete: what somebody else has written in
                # between is read before it may move on.
                self.intruded.add(where)
                return None
            self.expected[where] = span.first_offset + span.records
            position = Position(self.expected[where] - 1, span.timestamp)
        return position


def _where(delta: Delta) -> tuple[str, int]:
    return delta.table.name, delta.partition


def _rounds(deltas: Sequence[Delta]) -> Iterator[list[Part]]:
    """All keys of the deltas in their order, as many at a time as are to be in memory."""
    parts: list[Part] = []
    left = _ROUND
    for delta in deltas:
        start = 0
        while start < len(delta):
            stop = min(start + left, len(delta))
            parts.append(Part(delta, start, stop))
            left -= stop - start
            start = stop
            if not left:
                yield parts
                parts, left = [], _ROUND
    if parts:
        yield parts
