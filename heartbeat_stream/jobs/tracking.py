"""Tracking events: recognised again when an SDK reports them twice, and stored.

When two events are one says :mod:`heartbeat_stream.core.tracking`; here is how what was seen is
remembered, and what becomes of each. A verdict that an event brings along from the door is kept.
"""

from collections import Counter
from collections.abc import Mapping
from typing import ClassVar, Final

from heartbeat_stream.core.event_times import received_at_ms
from heartbeat_stream.core.identity.seen import First
from heartbeat_stream.core.identity.stored import decode_first, encode_first
from heartbeat_stream.core.json_object import text_of
from heartbeat_stream.core.reasons import Rejected
from heartbeat_stream.core.tracking import BoundedNames, TrackingEvent, marked, read_event
from heartbeat_stream.core.tracking_record import Envelope, Verdict, envelope_of
from heartbeat_stream.database import postgres_settings
from heartbeat_stream.jobs.event_appending import EventAppender, Placed
from heartbeat_stream.jobs.job import House
from heartbeat_stream.jobs.memory import Memory
from heartbeat_stream.jobs.stream_job import StreamJob
from heartbeat_stream.settings import Settings, SettingsError
from heartbeat_stream.sinks.event_sink import EventRow, EventSink
from heartbeat_stream.sinks.event_table import TABLE_BYTES_MAX
from heartbeat_stream.sinks.table import Table
from heartbeat_stream.streaming.fetching import FetchedRecord
from heartbeat_stream.streaming.forwarding import Arrival
from heartbeat_stream.streaming.topics import JobTopics, NamedTopic

__all__ = ["TrackingJob", "build", "topics"]

#: Before the key of an event.
_PREFIX: Final = b"t"
#: So much longer than it counts an event is held, on the partition's clock, which other sources
#: may be ahead of.
_GRACE_MS: Final = 60_000
#: Names of projects and of SDKs that figures tell apart.
_MOST_PROJECTS: Final = 50
_MOST_LIBS: Final = 20

_OUTCOMES: Final = {
    Verdict.FIRST: "unique",
    Verdict.DUPLICATE: "duplicates",
    Verdict.EXEMPT: "exempt",
    Verdict.UNJUDGED: "unjudged",
}


class TrackingJob(StreamJob):
    """The job in one worker."""

    name: ClassVar[str] = "tracking"
    table: ClassVar[str] = "tracking-seen"
    outcomes: ClassVar = (
        "records",
        "tombstones",
        "rejected",
        "repeated",
        *_OUTCOMES.values(),
    )

    def __init__(self, house: House, topics: JobTopics, partitions: int) -> None:
        super().__init__(house, topics, partitions)
        settings = house.settings
        self._policy = settings.tracking_policy
        self._signup = settings.tracking_signup
        self._window_ms = settings.tracking_window_ms
        self._source = topics.source.name
        self._rows: list[Placed] = []
        sink = EventSink(
            postgres_settings(settings), Table.parse(settings.tracking_table), house.now_ms
        )
        self._appender = EventAppender(sink, self._refuse)
        house.checkpointer.waits_for(self._appender.settled)
        self._project_label = BoundedNames(_MOST_PROJECTS)
        self._lib_label = BoundedNames(_MOST_LIBS)
        self.by_sdk: Counter[tuple[str, str, str, str]] = Counter()
        """Events by the labels of their project and SDK, the policy and the outcome."""

    # -- deciding --------------------------------------------------------------------------------

    def route(self, value: bytes) -> bytes:
        return read_event(value).partition_key

    def route_of(self, record: FetchedRecord) -> bytes:
        envelope = envelope_of(record.headers)
        return read_event(record.value or b"", envelope.project).partition_key

    def decide(self, memory: Memory, arrival: Arrival) -> None:
        envelope = envelope_of(arrival.headers)
        event = read_event(arrival.value, envelope.project, envelope.remark)
        document = text_of(arrival.value)
        verdict = envelope.verdict or self._judge(memory, arrival, event)
        outcome = _OUTCOMES[verdict]
        self.counts[outcome] += 1
        labels = self._project_label(event.project), self._lib_label(event.lib)
        self.by_sdk[*labels, self._policy, outcome] += 1
        is_duplicate = verdict is Verdict.DUPLICATE
        if is_duplicate and self._policy == "drop":
            return
        remark = marked(event.remark) if is_duplicate else event.remark
        self._rows.append((arrival, self._row(arrival, envelope, event, remark, document)))

    def _judge(self, memory: Memory, arrival: Arrival, event: TrackingEvent) -> Verdict:
        identity = event.identity(signup=self._signup)
        if identity is None:
            return Verdict.EXEMPT
        key = _PREFIX + identity
        entry = memory.get(key)
        first = decode_first(entry.payload) if entry is not None else None
        if first is not None and arrival.at_ms - first.seen_at_ms >= self._window_ms:
            first = None
        here = First(arrival.at_ms, self._source, arrival.partition, arrival.offset)
        if first is None:
            verdict, kept = Verdict.FIRST, here
        else:
            seen_at_ms = max(first.seen_at_ms, arrival.at_ms)
            kept = first._replace(seen_at_ms=seen_at_ms)
            # After a crash it comes once more, and was stored. The table knows it again.
            is_itself = first[1:] == here[1:]
            self.counts["repeated"] += is_itself
            verdict = Verdict.FIRST if is_itself else Verdict.DUPLICATE
        expires_ms = memory.clock.expires_ms(kept.seen_at_ms, self._window_ms + _GRACE_MS)
        memory.put(key, arrival.version, expires_ms, encode_first(kept))
        return verdict

    def _row(
        self,
        arrival: Arrival,
        envelope: Envelope,
        event: TrackingEvent,
        remark: str | None,
        document: str,
    ) -> EventRow:
        return EventRow.of(
            event,
            document,
            received_at_ms(envelope.received_at_ms, arrival.at_ms),
            remark,
            (self._source, arrival.partition, arrival.offset),
        )

    # -- storing ---------------------------------------------------------------------------------

    def flush(self) -> None:
        if self._rows:
            self._appender.put(self._rows)
            self._rows = []

    async def room(self) -> None:
        await self._appender.room()

    async def _refuse(self, arrival: Arrival, why: Rejected) -> None:
        await self._reject([(arrival, why)])

    def trouble(self) -> Mapping[str, str | None]:
        return {"event_table_error": self._appender.last_error}

    async def stop(self) -> None:
        await self._appender.stop()


def topics(settings: Settings) -> JobTopics:
    """What the job reads and keeps. Raises SettingsError where the table's name is too long."""
    table = Table.parse(settings.tracking_table)
    if len(table.name.encode()) > TABLE_BYTES_MAX:
        raise SettingsError(
            f'HEARTBEAT_TRACKING_TABLE: "{settings.tracking_table}" is too long: want '
            f"{TABLE_BYTES_MAX} bytes at most, since a partition's name is longer"
        )
    return JobTopics(
        settings,
        TrackingJob.name,
        NamedTopic(settings.tracking_topic, "HEARTBEAT_TRACKING_TOPIC"),
        (TrackingJob.table,),
        keyed=settings.tracking_keyed,
        keyed_variable="HEARTBEAT_TRACKING_KEYED",
    )


def build(house: House, topics: JobTopics, partitions: int) -> TrackingJob:
    """The job of a worker."""
    return TrackingJob(house, topics, partitions)
