"""Input that cannot be used, kept as it came, with the reason."""

from collections import Counter

from faust.types import TP

from heartbeat_stream.core.latest import Record
from heartbeat_stream.core.reasons import Reason, Rejected
from heartbeat_stream.streaming.producer import Headers, Outbox, OutRecord

__all__ = ["CUT_MARK", "DeadLetters"]

#: The header of a dead letter of which a part alone is left: the length that its value had.
CUT_MARK = "original-length"


class DeadLetters:
    """The dead-letter topic. What is put here is acknowledged before the next checkpoint ends."""

    def __init__(self, outbox: Outbox, topic: str, partitions: int) -> None:
        self._outbox = outbox
        self._topic = topic
        self._partitions = partitions
        self.by_reason: Counter[str] = Counter()

    async def put_record(self, tp: TP, record: Record, rejected: Rejected) -> None:
        """A record of a source topic, key and value byte for byte."""
        await self.put(record.key, record.value, rejected, tp.topic, tp.partition, record.offset)

    async def put_refused(self, topic: str, record: OutRecord) -> None:
        """What a topic does not take; where it came from stands in its headers, if anywhere."""
        self.by_reason[Reason.TOO_LARGE] += 1
        why = Rejected(Reason.TOO_LARGE, f"the topic {topic} does not take it")
        headers = [*_reason_headers(why), *(record.headers or [])]
        letter = OutRecord(record.key, record.value, headers)
        await self._outbox.put(self._topic, 0, [letter], timestamp_ms=None, shrink=cut)

    async def put(
        self,
        key: bytes | None,
        value: bytes | None,
        rejected: Rejected,
        source_topic: str,
        source_partition: int,
        source_offset: int,
    ) -> None:
        """Waits only while very many records are under way."""
        topic, partition, letter = self.letter(
            key, value, rejected, source_topic, source_partition, source_offset
        )
        await self._outbox.put(topic, partition, [letter], timestamp_ms=None, shrink=cut)

    def letter(
        self,
        key: bytes | None,
        value: bytes | None,
        rejected: Rejected,
        source_topic: str,
        source_partition: int,
        source_offset: int,
    ) -> tuple[str, int, OutRecord]:
        """The record of a dead letter, and its topic and partition: for one who sends it."""
        self.by_reason[rejected.reason] += 1
        headers = [
            *_reason_headers(rejected),
            ("source-topic", source_topic.encode()),
            ("source-partition", b"%d" % source_partition),
            ("source-offset", b"%d" % source_offset),
        ]
        record = OutRecord(key, value, headers)
        return self._topic, source_partition % self._partitions, record


def _reason_headers(rejected: Rejected) -> Headers:
    return [
        ("reason", str(rejected.reason).encode()),
        ("detail", rejected.detail.encode()),
    ]


def cut(record: OutRecord) -> OutRecord:
    """Half of a dead letter that is too large for its topic, and how long it was."""
    key, value, headers = record.key, record.value, record.headers or []
    largest = max(len(key or b""), len(value or b""))
    if not any(name == CUT_MARK for name, _ in headers):
        headers = [*headers, (CUT_MARK, b"%d" % len(value or b""))]
    half = largest // 2
    return OutRecord(
        key[:half] if key is not None and len(key) > half else key,
        value[:half] if value is not None and len(value) > half else value,
        headers,
    )
