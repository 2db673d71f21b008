"""`replay dead-letters`: what has become right since is sent to the source topic again, once.

Which ones were sent stands in a topic of its own, the ledger, a record for each. (A committed
offset would not do: those that are still wrong stay, for a later fix, between others that went.)
It goes by the records of the source topic, of which one may have become several dead letters. What
they were sent as stands there, too: where the workers refuse that again, it would go round forever.
A transaction holds both the heartbeats and their records in the ledger, so that a command which is
killed has sent each or has not, and the next one knows which. Workers wait for the end of a
transaction before they read on, so one that is left open is soon ended by the brokers.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from aiokafka import AIOKafkaProducer
from aiokafka.errors import ProducerFenced, UnknownError, UnsupportedVersionError
from aiokafka.structs import RecordMetadata, TopicPartition

from heartbeat_stream.core.heartbeat import Heartbeat
from heartbeat_stream.core.partition import partition_for
from heartbeat_stream.database import postgres_settings
from heartbeat_stream.recovery.cluster import (
    connection,
    ends_of,
    offsets_at,
    partition_counts,
)
from heartbeat_stream.recovery.errors import PartlyDone, RecoveryError
from heartbeat_stream.recovery.moments import AtTime, Earliest
from heartbeat_stream.recovery.operation import Progress
from heartbeat_stream.recovery.reading import Span, read_spans, records_in
from heartbeat_stream.recovery.rows import upsert_patiently
from heartbeat_stream.recovery.traces import trace
from heartbeat_stream.recovery.verdicts import (
    Judged,
    Ledger,
    Verdict,
    bounds_of,
    judge,
    made_key,
    sent_key,
    source_partition,
)
from heartbeat_stream.recovery.words import number_of
from heartbeat_stream.settings import Settings
from heartbeat_stream.sinks.postgres import PostgresSink, Table
from heartbeat_stream.streaming.fetching import FetchedRecord
from heartbeat_stream.streaming.topic_admin import describe_topics, ensure_topics, kafka_admin
from heartbeat_stream.streaming.topics import TopicSpec, dead_letter_topic

__all__ = ["DeadLetterReplay"]

#: Dead letters in one transaction.
_BATCH = 500
_TRANSACTION_MS = 10_000


def ledger_topic(settings: Settings) -> TopicSpec:
    """Where each dead letter is noted that was sent again: for as long as there are dead letters.

    Which app id did it does not matter, so it is named after the topic of the dead letters.
    """
    letters = dead_letter_topic(settings)
    return TopicSpec(
        f"{settings.dead_letter_topic}.replayed",
        1,
        settings.replication_factor,
        {**letters.config, "cleanup.policy": "compact"},
    )


class Letter(NamedTuple):
    """A dead letter, where it stands, and what is to become of it."""

    tp: TopicPartition
    record: FetchedRecord
    judged: Judged


class DeadLetterReplay:
    """See :class:`heartbeat_stream.recovery.operation.Operation`.

    ``reason``: these only. ``since_ms``: those that were put there at this time or later.
    ``again``: those, too, that came back after they had been sent.
    """

    def __init__(
        self, settings: Settings, *, reason: str | None, since_ms: int | None, again: bool = False
    ) -> None:
        self._settings = settings
        self._again = again
        self._reason = reason
        self._since_ms = since_ms
        self._ledger = ledger_topic(settings)
        self._source_partitions = 0

    async def plan(self, progress: Progress) -> Sequence[str]:
        counts: Counter[tuple[str, Verdict]] = Counter()
        async for letter in self._letters(await self._read_ledger(), progress):
            counts[letter.judged.reason, letter.judged.verdict] += 1
        settings = self._settings
        lines = [f"dead letters of {settings.topic} in {settings.dead_letter_topic}:"]
        lines += _table(counts, planned=True) or ["none"]
        lines += _notes(counts)
        if any(verdict is Verdict.SEND for _, verdict in counts):
            lines.append(f"what is sent is noted in the topic {self._ledger.name}")
        return lines

    async def run(self, progress: Progress) -> Sequence[str]:
        settings = self._settings
        self._source_partitions = (await partition_counts(settings, [settings.topic]))[
            settings.topic
        ]
        async with kafka_admin(settings) as admin:
            await ensure_topics(admin, [self._ledger])
        counts: Counter[tuple[str, Verdict]] = Counter()
        # The producer comes first: it ends the transaction of one that was killed.
        async with self._open_producer() as producer:
            waiting: list[Letter] = []
            async for letter in self._letters(await self._read_ledger(), progress):
                if letter.judged.verdict in (Verdict.SEND, Verdict.WRITE):
                    waiting.append(letter)
                else:
                    counts[letter.judged.reason, letter.judged.verdict] += 1
                if len(waiting) >= _BATCH:
                    counts += await self._send(producer, waiting)
                    waiting = []
            counts += await self._send(producer, waiting)
        done = [*_table(counts, planned=False), *_notes(counts)] or ["there are no dead letters"]
        refused = counts["row-refused", Verdict.REFUSED]
        if refused:
            raise PartlyDone(
                f"the database still refuses {number_of(refused, 'row')}: mend the table (the "
                "header `detail` of the dead letters says what it has against them), and repeat "
                "the command",
                done,
            )
        return done

    # -- reading -----------------------------------------------------------------------------------

    async def _letters(self, ledger: Ledger, progress: Progress) -> AsyncIterator[Letter]:
        """Every dead letter that was asked for, as there are now."""
        settings = self._settings
        topic = settings.dead_letter_topic
        number = (await partition_counts(settings, [topic]))[topic]
        tps = [TopicPartition(topic, one) for one in range(number)]
        start = Earliest() if self._since_ms is None else AtTime(self._since_ms)
        starts, ends = await offsets_at(settings, tps, start), await ends_of(settings, tps)
        spans = {tp: Span(starts[tp], ends[tp]) for tp in tps}
        seen, wanted = 0, records_in(spans)
        bounds = bounds_of(settings, time.time_ns() // 1_000_000)
        async for tp, records in read_spans(settings, spans):
            for record in records:
                # An offset that a time leads to may have older records behind it.
                if self._since_ms is not None and record.timestamp < self._since_ms:
                    continue
                judged = judge(settings, tp, record, bounds, ledger, again=self._again)
                if self._reason not in (None, judged.reason):
                    continue
                if judged.verdict in (Verdict.SEND, Verdict.WRITE):
                    ledger.add(sent_key(tp, record))  # the next one of the same source record
                yield Letter(tp, record, judged)
            seen += len(records)
            progress(f"{seen:,} of {wanted:,} dead letters")

    async def _read_ledger(self) -> Ledger:
        name = self._ledger.name
        async with kafka_admin(self._settings) as admin:
            found = await describe_topics(admin, [name])
        if name not in found:
            return set()
        tps = [TopicPartition(name, one) for one in range(found[name].partitions)]
        starts = await offsets_at(self._settings, tps, Earliest())
        ends = await ends_of(self._settings, tps)
        spans = {tp: Span(starts[tp], ends[tp]) for tp in tps}
        return {
            record.key
            async for _, records in read_spans(self._settings, spans)
            for record in records
            if record.key is not None
        }

    # -- sending -----------------------------------------------------------------------------------

    @asynccontextmanager
    async def _open_producer(self) -> AsyncIterator[AIOKafkaProducer]:
        settings = self._settings
        producer = AIOKafkaProducer(
            client_id=f"{settings.app_id}-recovery",
            transactional_id=self._ledger.name,
            transaction_timeout_ms=_TRANSACTION_MS,
            max_request_size=64 * 1024 * 1024,
            **connection(settings),
        )
        try:
            await producer.start()
            yield producer
        except ProducerFenced as error:
            raise RecoveryError(
                "another `replay dead-letters` has been started meanwhile: let it end"
            ) from error
        except (UnsupportedVersionError, UnknownError) as error:
            raise RecoveryError(
                "the brokers know no transactions, which this needs; the embedded one does not"
            ) from error
        finally:
            await producer.stop()

    async def _send(
        self, producer: AIOKafkaProducer, letters: Sequence[Letter]
    ) -> Counter[tuple[str, Verdict]]:
        """Send these, or write them to the database, and note it; what has become of them."""
        if not letters:
            return Counter()
        refused = await self._write([one for one in letters if one.judged.verdict is Verdict.WRITE])
        done = [one for one in letters if sent_key(one.tp, one.record) not in refused]
        async with producer.transaction():
            sent = [
                await self._send_one(producer, one)
                for one in done
                if one.judged.verdict is Verdict.SEND
            ]
            made = await asyncio.gather(*(acknowledged for acknowledged, _ in sent))
            noted = [sent_key(one.tp, one.record) for one in done]
            noted += [
                made_key(at.topic, at.partition, at.offset, value)
                for at, (_, value) in zip(made, sent, strict=True)
            ]
            now = b"%d" % (time.time_ns() // 1_000_000)
            for key in noted:
                await producer.send(self._ledger.name, now, key, 0)
        counts = Counter((one.judged.reason, one.judged.verdict) for one in done)
        for _ in refused:
            counts["row-refused", Verdict.REFUSED] += 1
        return counts

    async def _send_one(
        self, producer: AIOKafkaProducer, letter: Letter
    ) -> tuple[asyncio.Future[RecordMetadata], bytes | None]:
        """Under way to the source topic: where it will stand there, and its value."""
        record, settings = letter.record, self._settings
        if settings.source_keyed and record.key is not None:
            partition = partition_for(record.key, self._source_partitions)
        else:
            # Judged before: it has one. The topic may have had more of them.
            partition = (source_partition(record) or 0) % self._source_partitions
        headers = trace((), letter.tp.topic, letter.tp.partition, record.offset)
        acknowledged = await producer.send(
            settings.topic, record.value, record.key, partition, headers=headers
        )
        return acknowledged, record.value

    async def _write(self, letters: Sequence[Letter]) -> Ledger:
        """Write rows that the database had refused; the keys of those that it still refuses."""
        newest: dict[tuple[int, str], Heartbeat] = {}
        for letter in letters:
            row = letter.judged.heartbeat
            if row is not None:
                known = newest.get((row.hotel_id, row.room_id))
                if known is None or row.ts_ms > known.ts_ms:
                    newest[row.hotel_id, row.room_id] = row
        if not newest:
            return set()
        settings = self._settings
        sink = PostgresSink(postgres_settings(settings, pool_size=1), Table.parse(settings.table))
        rows = list(newest.values())
        try:
            refused = await upsert_patiently(sink, rows)
        finally:
            await sink.stop(1.0)
        guilty = {(rows[one.index].hotel_id, rows[one.index].room_id) for one in refused}
        return {
            sent_key(letter.tp, letter.record)
            for letter in letters
            if letter.judged.heartbeat is not None
            and (letter.judged.heartbeat.hotel_id, letter.judged.heartbeat.room_id) in guilty
        }


def _table(counts: Counter[tuple[str, Verdict]], *, planned: bool) -> list[str]:
    """Lines for people: how many of each reason, and what becomes of them, or has become."""
    lines = [
        (reason, verdict.planned if planned else verdict.done, count)
        for (reason, verdict), count in counts.items()
        if count
    ]
    return [f"{count:>9,}  {reason}: {words}" for reason, words, count in sorted(lines)]


def _notes(counts: Counter[tuple[str, Verdict]]) -> list[str]:
    if not any(verdict is Verdict.BACK and count for (_, verdict), count in counts.items()):
        return []
    return [
        "the workers have refused again what came back: do they run with these settings? --again "
        "sends it once more"
    ]
