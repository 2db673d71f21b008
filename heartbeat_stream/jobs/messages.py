"""The message filter: any text, printed unless the same text was printed within the window.

What counts is :mod:`heartbeat_stream.core.messages`; here is where texts come from and go to.
"""

import heapq
from collections.abc import Mapping
from typing import ClassVar, Final

import msgspec

from heartbeat_stream.core.messages import (
    Held,
    Window,
    content_key,
    decode_held,
    encode_held,
    expire,
    judge,
)
from heartbeat_stream.core.reasons import Reason, Rejected
from heartbeat_stream.jobs.job import House
from heartbeat_stream.jobs.memory import Memory
from heartbeat_stream.jobs.printing import LinePrinter, Printer, TablePrinter, TopicPrinter
from heartbeat_stream.jobs.stream_job import StreamJob
from heartbeat_stream.settings import Settings
from heartbeat_stream.streaming.forwarding import Arrival
from heartbeat_stream.streaming.producer import StampedRecord
from heartbeat_stream.streaming.topics import JobTopics, NamedTopic

__all__ = ["MessageJob", "build", "topics"]

#: So much longer than the window a text is held, on the partition's clock: by then, what came late
#: by as much has been judged.
_GRACE_MS: Final = 30_000
#: Where nothing else comes, a window counts as ended so long after its time.
_QUIET_MS: Final = 1_000
#: A longer text would not find its way through topics of Kafka's default size.
_LONGEST: Final = 900_000


class MessageJob(StreamJob):
    """The job in one worker."""

    name: ClassVar[str] = "messages"
    table: ClassVar[str] = "messages-printed"
    outcomes: ClassVar = ("records", "tombstones", "rejected", "printed", "suppressed", "repeated")

    def __init__(self, house: House, topics: JobTopics, partitions: int) -> None:
        super().__init__(house, topics, partitions)
        settings = house.settings
        self._window_ms = settings.messages_window_ms
        self._held_ms = settings.messages_window_ms + _GRACE_MS
        self._tells = settings.messages_count_suppressed
        #: By partition: when windows end of which something is to be told, and their keys.
        self._endings: dict[int, list[tuple[int, bytes]]] = {}
        self._topic = settings.messages_output_topic
        self._printer = self._make_printer()

    def _make_printer(self) -> Printer:
        match self.house.settings.messages_sink:
            case "topic":
                return TopicPrinter(self.topics.source.name, self._emit_printed)
            case "table":
                return TablePrinter(self.house, self.topics, self._refuse)
            case _:
                return LinePrinter(self.house)

    # -- deciding --------------------------------------------------------------------------------

    def route(self, value: bytes) -> bytes:
        if len(value) > _LONGEST:
            raise Rejected(Reason.TOO_LARGE, f"the text has {len(value)} bytes, at most {_LONGEST}")
        return content_key(value)

    def decide(self, memory: Memory, arrival: Arrival) -> None:
        key = content_key(arrival.value)
        held, version = self._held(memory, key)
        if version >= _version(arrival) and _is_past(held, arrival):
            self.counts["repeated"] += 1  # taken into account before a crash
            return
        source = arrival.partition, arrival.offset
        decision = judge(arrival.value, arrival.at_ms, held, self._window_ms, source)
        if decision.repeated:
            self.counts["repeated"] += 1  # forwarded before a crash, and once more after it
            return
        if decision.ended is not None:
            self._tell(decision.ended, memory, version, key)
        if decision.printed:
            self.counts["printed"] += 1
            self._printer.text(arrival, key)
        else:
            self.counts["suppressed"] += 1
            self._watch(memory, key, arrival.value, decision.held)
        self._keep(memory, key, _version(arrival), arrival.at_ms, decision.held)

    def _held(self, memory: Memory, key: bytes) -> tuple[Held, int]:
        entry = memory.get(key)
        return ((), -1) if entry is None else (decode_held(entry.payload), entry.version)

    def _keep(self, memory: Memory, key: bytes, version: int, at_ms: int, held: Held) -> None:
        expires_ms = memory.clock.expires_ms(at_ms, self._held_ms)
        memory.put(key, version, expires_ms, encode_held(held))

    # -- printing --------------------------------------------------------------------------------

    def _emit_printed(self, key: bytes, record: StampedRecord) -> None:
        partition = self.partition_of(key, self.house.output_partitions[self._topic])
        self.emit(self._topic, partition, record)

    def flush(self) -> None:
        self._printer.flush()

    async def room(self) -> None:
        await self._printer.room()

    async def _refuse(self, arrival: Arrival, why: Rejected) -> None:
        await self._reject([(arrival, why)])

    # -- telling how often a text was suppressed ---------------------------------------------------

    def _watch(self, memory: Memory, key: bytes, content: bytes, held: Held) -> None:
        """Look at this window again when it ends, unless that is planned already."""
        if not self._tells:
            return
        for window in held:
            if window.content == content and window.suppressed == 1:
                at_ms = window.printed_at_ms + self._window_ms
                heapq.heappush(self._endings.setdefault(memory.partition, []), (at_ms, key))

    def _tell(self, ended: Window, memory: Memory, version: int, key: bytes) -> None:
        """``version``: that of the entry that holds the window."""
        if self._tells:
            times = "once" if ended.suppressed == 1 else f"{ended.suppressed} times"
            line = b"suppressed %s: " % times.encode() + ended.content
            self._printer.told(line, ended, memory.partition, version // 2, key)

    def due(self, memory: Memory) -> None:
        endings = self._endings.get(memory.partition)
        now = max(memory.clock.now_ms, self.house.now_ms() - _QUIET_MS)
        while endings and endings[0][0] <= now:
            _, key = heapq.heappop(endings)
            self._end(memory, key, now)

    def _end(self, memory: Memory, key: bytes, now_ms: int) -> None:
        entry = memory.get(key)
        held = decode_held(entry.payload) if entry is not None else ()
        _, ended = expire(held, now_ms, self._window_ms)
        told = {id(window) for window in ended if window.suppressed}
        if entry is None or not told:
            return
        for window in ended:
            if window.suppressed:
                self._tell(window, memory, entry.version, key)
        # Held as before, since something may come late; but told of once.
        rest = tuple(
            msgspec.structs.replace(one, suppressed=0) if id(one) in told else one for one in held
        )
        memory.put(key, entry.version | 1, entry.expires_ms, encode_held(rest))

    def loaded(self, memory: Memory) -> None:
        if not self._tells:
            return
        self._endings[memory.partition] = []
        for key, payload in memory.scan():
            for window in decode_held(payload):
                if window.suppressed:
                    at_ms = window.printed_at_ms + self._window_ms
                    heapq.heappush(self._endings[memory.partition], (at_ms, key))

    def drop(self, partition: int) -> None:
        super().drop(partition)
        self._endings.pop(partition, None)

    # -- the end ---------------------------------------------------------------------------------

    def trouble(self) -> Mapping[str, str | None]:
        return self._printer.trouble()

    async def stop(self) -> None:
        await self._printer.stop()


def _version(arrival: Arrival) -> int:
    """An even number: the odd one behind it is that of the same entry, once its end was told."""
    return 2 * arrival.version


def _is_past(held: Held, arrival: Arrival) -> bool:
    """Whether this text was printed at this time or later. (Otherwise the topic that feeds the
    table was made anew, and counts its offsets from 0 again.)"""
    return any(
        window.content == arrival.value and arrival.at_ms <= window.printed_at_ms for window in held
    )


def topics(settings: Settings) -> JobTopics:
    """What the job reads, keeps and writes."""
    output = NamedTopic(settings.messages_output_topic, "HEARTBEAT_MESSAGES_OUTPUT_TOPIC")
    return JobTopics(
        settings,
        MessageJob.name,
        NamedTopic(settings.messages_topic, "HEARTBEAT_MESSAGES_TOPIC"),
        (MessageJob.table,),
        outputs=(output,) if settings.messages_sink == "topic" else (),
        soon=True,
    )


def build(house: House, topics: JobTopics, partitions: int) -> MessageJob:
    """The job of a worker."""
    return MessageJob(house, topics, partitions)
