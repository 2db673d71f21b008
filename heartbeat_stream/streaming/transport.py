"""A batch of records per Faust event, and offsets that are committed when their effect is durable.

Faust's own path makes an event, two tasks and an ack of every record. Here an event is made of all
records that one fetch brought of one partition, through two extension points of Faust: its
``ConsumerScheduler``, which pairs partitions with records, and the consumer's ``_to_message``,
which makes a message of what it is handed.

Written against faust-streaming 0.15.3. ``tests/kafka/test_offsets.py`` proves the offsets that
come of it, and breaks where Faust changes one of the private methods overridden here.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from typing import Any, Final

from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread, Consumer, Transport
from faust.types import TP, AppT, ConsumerMessage, Message

from heartbeat_stream.lag import Fetched, Place
from heartbeat_stream.streaming.consumer_thread import PositionThread
from heartbeat_stream.streaming.fetching import FetchedRecord

__all__ = ["MAX_BATCH_RECORDS", "BatchScheduler", "BatchTransport", "LedgerConsumer"]

#: The most records in one event. Merging them takes tens of milliseconds at most, so that the
#: event loop answers health checks in between.
MAX_BATCH_RECORDS: Final = 4000

_NO_END: Final = (-1, -1, 0.0)


class BatchScheduler:
    """Hands the records of a fetch on as batches, partition by partition in turn.

    It stands in for Faust's ``DefaultSchedulingStrategy``, record by record round robin.
    """

    def iterate(
        self, fetched: Mapping[TP, Sequence[list[FetchedRecord]]]
    ) -> Iterator[tuple[TP, list[FetchedRecord]]]:
        """Yield every record exactly once, in order within its partition."""
        waiting = deque((tp, batches_of(batches)) for tp, batches in fetched.items())
        while waiting:
            tp, batches = waiting.popleft()
            batch = next(batches, None)
            if batch is not None:
                yield tp, batch
                waiting.append((tp, batches))


def batches_of(fetched: Sequence[list[FetchedRecord]]) -> Iterator[list[FetchedRecord]]:
    """Kafka's record batches, small ones joined and large ones cut to MAX_BATCH_RECORDS."""
    joined: list[FetchedRecord] = []
    for records in fetched:
        joined = joined + records if joined else records
        while len(joined) >= MAX_BATCH_RECORDS:
            yield joined[:MAX_BATCH_RECORDS]
            joined = joined[MAX_BATCH_RECORDS:]
    if joined:
        yield joined


class LedgerConsumer(Consumer):
    """A consumer of batches, which commits the offset behind the last acknowledged batch.

    Faust keeps a list of every acknowledged offset, and intervals for those that a topic skips.
    None of it is needed where whoever acknowledges does so in offset order per partition, as
    :class:`heartbeat_stream.streaming.checkpoint.Checkpointer` does: then one number per partition
    is the whole ledger.
    """

    app: AppT

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        #: Behind the last batch of a partition that was acknowledged.
        self._durable: dict[TP, int] = {}
        #: The last record of a partition that was fetched, if any, and the position behind it.
        self._fetched: dict[TP, tuple[int | None, int]] = {}
        #: For the lag: the first record of a partition that was fetched, and its high watermark
        #: with aiokafka's and our time of the answer that told it.
        self._first: dict[TP, Place] = {}
        self._ends: dict[TP, tuple[int, int, float]] = {}
        #: How often a partition's log was found to have begun anew.
        self._logs: Counter[TP] = Counter()
        self._committing = asyncio.Lock()

    def _new_consumer_thread(self) -> AIOKafkaConsumerThread:
        return PositionThread(self, loop=self.loop, beacon=self.beacon)

    def note_fetched(
        self, fetched: Mapping[TP, Sequence[list[FetchedRecord]]], consumer: Any
    ) -> None:
        """Called in the consumer's thread, right after a fetch and before its records go on."""
        if not self.flow_active:
            # A rebalance has begun: the records go nowhere, and the position is behind them. Noted
            # after the ledger was cleared, it would be committed, and the records lost.
            return
        for tp in consumer.assignment():
            state = consumer._subscription.subscription.assignment.state_value(tp)
            if state is None or not state.has_valid_position:
                continue
            ours = TP(tp.topic, tp.partition)
            batches = fetched.get(tp)
            if batches and batches[0][0].offset < self._fetched.get(ours, (None, 0))[1]:
                self._begin_anew(ours)
            last = batches[-1][-1].offset if batches else self._fetched.get(ours, (None, 0))[0]
            self._fetched[ours] = last, state.position
            if batches and ours not in self._first:
                self._first[ours] = Place(batches[0][0].offset, batches[0][0].timestamp)
            # Relied upon in aiokafka 0.14: ``timestamp`` is when ``highwater`` was told.
            if state.highwater is not None and state.timestamp != self._ends.get(ours, _NO_END)[1]:
                self._ends[ours] = state.highwater, state.timestamp, time.monotonic()

    def _begin_anew(self, tp: TP) -> None:
        """What was read last lies before what had been read: it is another log.

        The topic was deleted and created again, or brokers have lost records that they had already
        shown. What is known of the old one's offsets says nothing of the new one. (After a seek
        back nothing is lost either: what had been read is read, and acknowledged, once more.)
        """
        self._logs[tp] += 1
        self._durable.pop(tp, None)
        self._read_offset[tp] = None  # Faust drops what lies before it
        self._committed_offset[tp] = None  # and commits nothing that does

    def fetched(self, topics: Set[str]) -> dict[TP, Fetched]:
        """How far fetching has come in each partition of these topics. Costs no request."""
        now = time.monotonic()
        found = {}
        for tp, (last, position) in self._fetched.copy().items():
            if tp.topic in topics:
                end, _, told_at = self._ends.get(tp, _NO_END)
                found[tp] = Fetched(
                    position, None if end < 0 else end, now - told_at, self._first.get(tp), last
                )
        return found

    def ping(self, answer: Callable[[], None]) -> None:
        """Have the consumer's thread call ``answer`` as soon as its event loop comes to it."""
        # Relied upon in mode: a ServiceThread has a loop of its own, which is closed at its end.
        thread = self._thread
        if thread is not None:
            with suppress(RuntimeError):
                thread.thread_loop.call_soon_threadsafe(answer)

    # -- Faust's extension points ------------------------------------------------------------------

    def _to_message(self, tp: TP, record: Any) -> ConsumerMessage:
        # Relied upon: Faust hands over what the scheduler yielded, and takes the message's offset
        # for the position that it has read.
        last: FetchedRecord = record[-1]
        return ConsumerMessage(
            tp.topic,
            tp.partition,
            last.offset,
            last.timestamp / 1000.0,
            last.timestamp_type,
            None,
            None,
            record,
            None,
            self._logs[tp],  # Faust has the size of the key here, and makes no use of it
            0,
            tp,
            generation_id=self.app.consumer_generation_id,
        )

    def ack(self, message: Message) -> bool:
        """Note that everything up to this batch is durable. Call in offset order per partition."""
        if message.acked:
            return False
        message.acked = True
        self._unacked_messages.discard(message)
        if message.generation_id != self.app.consumer_generation_id:
            return False  # a rebalance has come between: the batch will be delivered once more
        if message.serialized_key_size != self._logs[message.tp]:
            return False  # of a log that is no longer there
        self._durable[message.tp] = message.offset + 1
        return True

    async def _add_gap(self, tp: TP, offset_from: int, offset_to: int) -> None:
        # Relied upon: called for offsets that were skipped. The ledger has no gaps.
        pass

    def _filter_tps_with_pending_acks(self, topics: Any = None) -> Iterator[TP]:
        return (
            tp
            for tp in {**self._fetched, **self._durable}
            if self.app.topics.acks_enabled_for(tp.topic)
            and (topics is None or tp in topics or tp.topic in topics)
        )

    def _new_offset(self, tp: TP) -> int | None:
        durable = self._durable.get(tp)
        last, position = self._fetched.get(tp, (None, 0))
        if durable is None:
            return position if last is None and position else None
        # When every record that was fetched is acknowledged, what lies between the last one and
        # the position are markers of transactions, or records that compaction took away. Nobody
        # will ever acknowledge those.
        return max(durable, position) if last is not None and durable > last else durable

    async def commit(self, topics: Any = None, start_new_transaction: bool = True) -> bool:
        # Faust lets who comes while another commits wait for that one and commit nothing. But what
        # was acknowledged last is to be committed before a partition is given up.
        async with self._committing:
            return bool(await self.force_commit(topics, start_new_transaction))

    async def _commit_offsets(
        self, offsets: Mapping[TP, int], start_new_transaction: bool = True
    ) -> bool:
        # Faust counts offsets as committed also where that has failed, and does not try again.
        assignment = self.assignment()
        ours = {tp: offset for tp, offset in offsets.items() if tp in assignment}
        generation = self.app.consumer_generation_id
        if not ours or not await self._commit(ours):
            return False
        if generation == self.app.consumer_generation_id:
            self._committed_offset.update(ours)
            self.app.monitor.on_tp_commit(ours)
        return True

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        # Faust forgets its acks before it calls the application back. The ledger is kept until
        # after that, because the checkpoint that the call-back makes is to be committed.
        await super().on_partitions_revoked(revoked)
        for tp in revoked:
            for known in (self._durable, self._fetched, self._first, self._ends):
                known.pop(tp, None)


class BatchTransport(Transport):
    """Faust's aiokafka transport with the consumer above."""

    Consumer = LedgerConsumer
