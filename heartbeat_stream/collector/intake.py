"""A report, from its text to Kafka's acknowledgement.

Events go in rounds. In each, those go out that the store has answered for; those that another
report has claimed at this moment wait for the next, so that nobody holds claims while waiting for
others'. What Kafka has acknowledged is confirmed as seen; what it has not is given back whole.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from heartbeat_stream.collector.events import BadPart, Item, read_items
from heartbeat_stream.collector.figures import Figures
from heartbeat_stream.collector.judging import Claims, Judge
from heartbeat_stream.collector.report import Report
from heartbeat_stream.collector.sender import NotSent, Sender
from heartbeat_stream.collector.unpacking import Bounds
from heartbeat_stream.core.partition import partition_for
from heartbeat_stream.core.tracking_record import Envelope, Verdict, headers_of
from heartbeat_stream.streaming.dead_letters import cut
from heartbeat_stream.streaming.producer import OutRecord

__all__ = ["Intake", "Piece", "Rules"]

logger = logging.getLogger(__name__)

_ASK_AGAIN_FIRST_S: Final = 0.005
_ASK_AGAIN_MOST_S: Final = 0.1
_LETTER_BYTES: Final = 256 * 1024
_UNASKED: Final = "unasked"
#: Events that are judged and sent together: a store's batch, and some ten milliseconds.
_AT_ONCE: Final = 2_000


@dataclass(frozen=True)
class Rules:
    """The settings that say what becomes of events."""

    topic: str
    dead_letter_topic: str
    drop: bool
    signup: bool
    bounds: Bounds
    pending_wait_s: float


@dataclass
class Piece:
    """Events of a report that Kafka has not acknowledged. ``doubt`` is there while it still may:
    it ends with whether Kafka has them after all."""

    items: list[Item] = field(default_factory=list)
    bad: list[BadPart] = field(default_factory=list)
    doubt: "asyncio.Task[bool] | None" = None

    def report(self, of: Report) -> Report:
        """What is to be kept of a report."""
        parts = [b"[" + b",".join([item.value for item in self.items]) + b"]"] if self.items else []
        parts += [bad.value for bad in self.bad]
        return Report(of.received_at_ms, of.project, of.remark, tuple(parts))


@dataclass
class Taken:
    """What became of a report."""

    unsent: list[Piece]
    total: int

    @property
    def nothing_sent(self) -> bool:
        return sum(len(piece.items) + len(piece.bad) for piece in self.unsent) == self.total


@dataclass
class _Batch:
    """What goes to one partition together."""

    records: list[OutRecord] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    bad: list[BadPart] = field(default_factory=list)


Batches = dict[tuple[str, int], _Batch]


class Intake:
    """``judge`` is None where duplicates are not recognised at the door."""

    def __init__(self, rules: Rules, sender: Sender, judge: Judge | None, figures: Figures) -> None:
        self._rules = rules
        self._sender = sender
        self._judge = judge
        self._figures = figures

    async def take(
        self,
        report: Report,
        documents: Sequence[bytes],
        bad: Sequence[BadPart],
        ack_wait_s: float | None,
    ) -> Taken:
        """Bring a report to Kafka; what it has not acknowledged in time, nothing if all is well.

        ``ack_wait_s`` is for all of it; None: for as long as it takes Kafka to say yes or no.
        """
        rules = self._rules
        now = asyncio.get_running_loop().time
        deadline = now() + ack_wait_s if ack_wait_s is not None else None
        reading = await read_items(
            report, documents, rules.bounds, judged=self._judge is not None, signup=rules.signup
        )
        every_bad, items = [*bad, *reading.bad], reading.items
        letters = self._letters(report, every_bad)
        unsent = await self._send(letters, Judge.owner(), deadline)
        for at in range(0, len(items), _AT_ONCE):
            if unsent:
                unsent.append(Piece(items[at:]))
                break
            unsent = await self._rounds(report, items[at : at + _AT_ONCE], deadline)
        return Taken(unsent, len(items) + len(every_bad))

    async def _rounds(
        self, report: Report, items: list[Item], deadline: float | None
    ) -> list[Piece]:
        now = asyncio.get_running_loop().time
        owner, pause = Judge.owner(), _ASK_AGAIN_FIRST_S
        patience = now() + self._rules.pending_wait_s
        while items:
            ready, items = await self._verdicts(items, owner, last=now() >= patience)
            unsent = await self._send(self._batches(report, ready), owner, deadline)
            if unsent:  # Kafka is away: the others are not worth the wait
                return [*unsent, Piece(items)] if items else unsent
            if items:
                await asyncio.sleep(pause)
                pause = min(pause * 2, _ASK_AGAIN_MOST_S)
        return []

    async def _verdicts(
        self, items: list[Item], owner: bytes, *, last: bool
    ) -> tuple[list[Item], list[Item]]:
        """The events that can go, their verdicts set, and those that have to wait.

        ``last``: nothing waits any more. Of copies within a report the first counts.
        """
        if self._judge is None:
            return items, []
        keys = list(dict.fromkeys(item.key for item in items if item.key is not None))
        claims = await self._judge.claim(keys, owner) if keys else Claims({}, [])
        verdicts = dict(claims.verdicts)
        if last:
            verdicts |= dict.fromkeys(claims.pending, Verdict.UNJUDGED)
        ready, waiting = [], []
        for item in items:
            if item.key is None:
                item.verdict = Verdict.EXEMPT
            elif item.key in verdicts:
                item.verdict = verdicts[item.key]
                verdicts[item.key] = Verdict.DUPLICATE
            else:
                waiting.append(item)
                continue
            ready.append(item)
        return ready, waiting

    def _batches(self, report: Report, ready: Sequence[Item]) -> Batches:
        topic = self._rules.topic
        partitions = self._sender.partitions[topic]
        batches: Batches = defaultdict(_Batch)
        headers = {
            verdict: headers_of(
                Envelope(report.project, report.remark, report.received_at_ms, verdict)
            )
            for verdict in {item.verdict for item in ready}
        }
        for item in ready:
            batch = batches[topic, partition_for(item.partition_key, partitions)]
            batch.items.append(item)
            if not (self._rules.drop and item.verdict is Verdict.DUPLICATE):
                record = OutRecord(item.partition_key, item.value, headers[item.verdict])
                batch.records.append(record)
        return batches

    def _letters(self, report: Report, bad: Sequence[BadPart]) -> Batches:
        if not bad:
            return {}
        batch = _Batch(bad=list(bad))
        for one in bad:
            headers = [
                ("reason", str(one.rejected.reason).encode()),
                ("detail", one.rejected.detail.encode()),
                *headers_of(Envelope(report.project, report.remark, report.received_at_ms)),
            ]
            batch.records.append(_bounded(OutRecord(None, one.value, headers)))
        return {(self._rules.dead_letter_topic, 0): batch}

    async def _send(self, batches: Batches, owner: bytes, deadline: float | None) -> list[Piece]:
        """Send all; what was not acknowledged in time."""
        under_way = [
            (batch, asyncio.create_task(self._deliver(topic, partition, batch, owner)))
            for (topic, partition), batch in batches.items()
        ]
        if not under_way:
            return []
        left = deadline - asyncio.get_running_loop().time() if deadline is not None else None
        await asyncio.wait([task for _, task in under_way], timeout=left and max(0.0, left))
        return [
            Piece(batch.items, batch.bad, None if task.done() else task)
            for batch, task in under_way
            if not (task.done() and task.result())
        ]

    async def _deliver(self, topic: str, partition: int, batch: _Batch, owner: bytes) -> bool:
        """Whether Kafka has a batch. The store is told either way, before the client is."""
        keys = list(dict.fromkeys(item.key for item in batch.items if item.key is not None))
        try:
            if batch.records:
                await self._sender.send(topic, partition, batch.records)
        except NotSent:
            if self._judge is not None:
                await self._judge.release(keys, owner)
            return False
        if self._judge is not None:
            await self._judge.confirm(keys)
        for item in batch.items:
            self._figures.event(item.project, item.lib, item.verdict or _UNASKED)
        self._figures.bad.update(one.rejected.reason for one in batch.bad)
        return True


def _bounded(letter: OutRecord) -> OutRecord:
    """A dead letter, cut where it is too large to be read by anybody."""
    while len(letter.value or b"") > _LETTER_BYTES:
        letter = cut(letter)
    return letter
