"""Market messages: each once, however often and by however many ways it comes.

When two messages are one says :mod:`heartbeat_stream.core.identity`; here is where they come from
and go to, and how what was seen is remembered.
"""

import time
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import msgspec

from heartbeat_stream.config.jobs import load_job_config
from heartbeat_stream.core.expiring import payload_of, wrap
from heartbeat_stream.core.identity.continuity import ContinuityEvent, Oddity
from heartbeat_stream.core.identity.layer import Layer
from heartbeat_stream.core.identity.layers import Judge, Message, Verdict
from heartbeat_stream.core.identity.scope_state import ScopeState
from heartbeat_stream.core.identity.seen import First
from heartbeat_stream.core.identity.stored import decode_first, encode_first
from heartbeat_stream.core.identity.tally import LayerTally, Tally
from heartbeat_stream.core.reasons import Rejected
from heartbeat_stream.database import postgres_settings
from heartbeat_stream.jobs.appending import Appender
from heartbeat_stream.jobs.job import House
from heartbeat_stream.jobs.memory import Memory
from heartbeat_stream.jobs.stream_job import StreamJob
from heartbeat_stream.settings import Settings
from heartbeat_stream.sinks.json_statement import JsonStatement
from heartbeat_stream.sinks.message_table import append_sql
from heartbeat_stream.sinks.table import Table
from heartbeat_stream.streaming.forwarding import Arrival, source_headers
from heartbeat_stream.streaming.producer import Headers, StampedRecord
from heartbeat_stream.streaming.topics import JobTopics, NamedTopic

__all__ = ["MarketJob", "build", "topics"]

#: So much longer than it counts an identity is held, on the partition's clock, which other sources
#: may be ahead of.
_GRACE_MS: Final = 60_000
#: States of sequences that are kept as they are for each partition.
_MOST_STATES: Final = 20_000

_encode = msgspec.json.Encoder().encode


class MarketJob(StreamJob):
    """The job in one worker."""

    name: ClassVar[str] = "market"
    table: ClassVar[str] = "market-seen"
    outcomes: ClassVar = ("records", "tombstones", "rejected", "unique", "duplicates", "repeated")

    def __init__(self, house: House, topics: JobTopics, partitions: int) -> None:
        super().__init__(house, topics, partitions)
        settings = house.settings
        rules = load_job_config(settings.job_config).jobs[self.name]
        self._judge = Judge(rules)
        ids = [channel.message_id for channel in rules.channels.values()]
        self._state_lifetime_ms = _GRACE_MS + max((one.ttl_ms for one in ids if one), default=0)
        self.events.update({oddity.value: 0 for oddity in Oddity})
        self._tally = Tally(time.perf_counter_ns)
        self._source = topics.source.name
        self._unique = settings.market_unique_topic
        self._duplicates = settings.market_duplicates_topic
        self._continuity = settings.market_continuity_topic
        self._appender: Appender | None = None
        self._rows: list[Arrival] = []
        if settings.market_table is not None:
            statement = JsonStatement(
                postgres_settings(settings), append_sql(Table.parse(settings.market_table))
            )
            self._appender = Appender(statement, self._source, self._refuse)
            house.checkpointer.waits_for(self._appender.settled)
        self._remembered: dict[int, _Remembered] = {}

    @property
    def layers(self) -> Mapping[Layer, LayerTally]:
        """What each layer has done."""
        return self._tally.by_layer

    # -- deciding --------------------------------------------------------------------------------

    def route(self, value: bytes) -> bytes:
        return self._judge.read(value).scope_key

    def decide(self, memory: Memory, arrival: Arrival) -> None:
        message = self._judge.read(arrival.value)
        held = self._remembered[memory.partition]
        key = message.state_key
        state = held.state(key) if key is not None else None
        verdict = self._judge.judge(message, held, state, arrival.at_ms, self._tally)
        if key is not None and verdict.state is not None and verdict.state is not state:
            held.states[key] = verdict.state
            held.touched[key] = arrival
        if verdict.first is not None and self._is_itself(verdict.first, arrival):
            self.counts["repeated"] += 1  # put out, and remembered, before a crash
            return
        if verdict.is_new:
            self.counts["unique"] += 1
            self._record(memory, arrival, verdict)
            self._put(self._unique, arrival, message)
            if self._appender is not None:
                self._rows.append(arrival)
        else:
            self.counts["duplicates"] += 1
            self._put_duplicate(arrival, message, verdict)
        for event in verdict.events:
            self._tell(event, arrival, message)

    def _is_itself(self, first: First, arrival: Arrival) -> bool:
        return (
            first.offset == arrival.offset
            and first.partition == arrival.partition
            and first.seen_at_ms == arrival.at_ms
            and first.topic == self._source
        )

    def _record(self, memory: Memory, arrival: Arrival, verdict: Verdict) -> None:
        at_ms = arrival.at_ms
        first = encode_first((at_ms, self._source, arrival.partition, arrival.offset))
        value, lifetime_ms = b"", None
        for identity in verdict.record:
            if identity.ttl_ms != lifetime_ms:  # most layers have the same
                lifetime_ms = identity.ttl_ms
                expires_ms = memory.clock.expires_ms(at_ms, lifetime_ms + _GRACE_MS)
                value = wrap(arrival.version, expires_ms, first)
            memory.hold(identity.key, value)

    def flush(self) -> None:
        if self._appender is not None and self._rows:
            self._appender.put(self._rows)
            self._rows = []
        for held in self._remembered.values():
            held.hold_states(self._state_lifetime_ms)

    async def room(self) -> None:
        if self._appender is not None:
            await self._appender.room()

    async def _refuse(self, arrival: Arrival, why: Rejected) -> None:
        await self._reject([(arrival, why)])

    def trouble(self) -> Mapping[str, str | None]:
        return {} if self._appender is None else {"database_error": self._appender.last_error}

    async def stop(self) -> None:
        if self._appender is not None:
            await self._appender.stop()

    def loaded(self, memory: Memory) -> None:
        self._remembered[memory.partition] = _Remembered(memory)

    def drop(self, partition: int) -> None:
        super().drop(partition)
        self._remembered.pop(partition, None)

    # -- putting out -----------------------------------------------------------------------------

    def _put(self, topic: str, arrival: Arrival, message: Message, more: Headers = ()) -> None:
        headers = (*arrival.headers, *source_headers(self._source, arrival), *more)
        record = StampedRecord(arrival.key, arrival.value, headers, arrival.at_ms)
        self.emit(topic, self._partition(topic, message), record)

    def _partition(self, topic: str, message: Message) -> int:
        return self.partition_of(message.scope_key, self.house.output_partitions[topic])

    def _put_duplicate(self, arrival: Arrival, message: Message, verdict: Verdict) -> None:
        first = verdict.first
        if self._duplicates is None or first is None or verdict.layer is None:
            return
        more = (
            ("duplicate-layer", verdict.layer.value.encode()),
            ("duplicate-reason", verdict.reason.encode()),
            ("first-topic", first.topic.encode()),
            ("first-partition", b"%d" % first.partition),
            ("first-offset", b"%d" % first.offset),
        )
        self._put(self._duplicates, arrival, message, more)

    def _tell(self, event: ContinuityEvent, arrival: Arrival, message: Message) -> None:
        self.events[event.oddity.value] += 1
        told: dict[str, Any] = {
            **self._judge.scope_of(message),
            **msgspec.to_builtins(event),
            "source_topic": self._source,
            "source_partition": arrival.partition,
            "source_offset": arrival.offset,
        }
        topic = self._continuity
        record = StampedRecord(
            message.scope_key,
            _encode(told),
            source_headers(self._source, arrival),
            arrival.at_ms,
        )
        self.emit(topic, self._partition(topic, message), record)


class _Remembered:
    """What one partition remembers: identities, and how far its sequences have come."""

    __slots__ = ("_find", "_memory", "states", "touched")

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._find = memory.find
        #: States as they are, beside their form in the table.
        self.states: dict[bytes, ScopeState] = {}
        #: By which record they have changed in this slice.
        self.touched: dict[bytes, Arrival] = {}

    def get(self, key: bytes) -> First | None:
        value = self._find(key)
        return decode_first(payload_of(value)) if value is not None else None

    def state(self, key: bytes) -> ScopeState | None:
        state = self.states.get(key)
        if state is None:
            entry = self._memory.get(key)
            state = ScopeState.from_bytes(entry.payload) if entry is not None else None
        return state

    def hold_states(self, lifetime_ms: int) -> None:
        """Remember those that have changed."""
        memory = self._memory
        for key, arrival in self.touched.items():
            expires_ms = memory.clock.expires_ms(arrival.at_ms, lifetime_ms)
            memory.put(key, arrival.version, expires_ms, self.states[key].to_bytes())
        self.touched.clear()
        if len(self.states) > _MOST_STATES:
            self.states.clear()


def topics(settings: Settings) -> JobTopics:
    """What the job reads, keeps and writes. Raises SettingsError where its rules are wrong."""
    load_job_config(settings.job_config)
    outputs = [
        NamedTopic(settings.market_unique_topic, "HEARTBEAT_MARKET_UNIQUE_TOPIC"),
        NamedTopic(settings.market_continuity_topic, "HEARTBEAT_MARKET_CONTINUITY_TOPIC"),
    ]
    if settings.market_duplicates_topic is not None:
        outputs.append(
            NamedTopic(settings.market_duplicates_topic, "HEARTBEAT_MARKET_DUPLICATES_TOPIC")
        )
    return JobTopics(
        settings,
        MarketJob.name,
        NamedTopic(settings.market_topic, "HEARTBEAT_MARKET_TOPIC"),
        (MarketJob.table,),
        outputs=tuple(outputs),
        keyed=settings.market_keyed,
        keyed_variable="HEARTBEAT_MARKET_KEYED",
    )


def build(house: House, topics: JobTopics, partitions: int) -> MarketJob:
    """The job of a worker."""
    return MarketJob(house, topics, partitions)
