"""Taking the source topic in again from a point in time.

Without an end it is the workers' group that goes back: its committed offsets are set, and the
workers read on from there. A group cannot stop at an end, and to set its offsets behind one would
lose what lies between. So with an end the records of the range are sent to the topic once more, as
new ones behind its end, and the offsets stay where they are.
"""

from __future__ import annotations

from collections.abc import Sequence

from aiokafka.structs import TopicPartition

from heartbeat_stream.recovery.cluster import (
    commit,
    committed,
    ends_of,
    look_while_running,
    offsets_at,
    open_producer,
    partition_counts,
    refuse_while_running,
)
from heartbeat_stream.recovery.discarding import discard_tables
from heartbeat_stream.recovery.errors import RecoveryError
from heartbeat_stream.recovery.moments import Earliest, Moment, is_reversed
from heartbeat_stream.recovery.operation import Progress
from heartbeat_stream.recovery.reading import Span, read_spans, records_in
from heartbeat_stream.recovery.tables import read_tables
from heartbeat_stream.recovery.traces import trace
from heartbeat_stream.recovery.words import number_of, were
from heartbeat_stream.settings import Settings
from heartbeat_stream.streaming.producer import OutRecord
from heartbeat_stream.streaming.topic_admin import describe_topics, kafka_admin
from heartbeat_stream.streaming.topics import (
    TABLES,
    changelog_topic_name,
    repartition_topic_name,
)

__all__ = ["SourceReplay"]

_WHY = "they hold the offsets and the tables that this is to change"


class SourceReplay:
    """`replay source`. See :class:`heartbeat_stream.recovery.operation.Operation`.

    ``reset_state``: the tables are emptied first, and what waits in the repartition topic is
    passed over. ``dry_run``: workers may run.
    """

    def __init__(
        self,
        settings: Settings,
        start: Moment,
        end: Moment | None,
        *,
        reset_state: bool,
        dry_run: bool = False,
    ) -> None:
        self._settings = settings
        self._start = start
        self._end = end
        self._reset_state = reset_state
        self._dry_run = dry_run
        self._spans: dict[TopicPartition, Span] = {}
        self._passed_over: dict[TopicPartition, int] = {}

    @property
    def _needs_rest(self) -> bool:
        return self._end is None or self._reset_state

    async def plan(self, progress: Progress) -> Sequence[str]:
        settings, refusal = self._settings, list[str]()
        if self._end is not None and is_reversed(self._start, self._end):
            raise RecoveryError(f"--to ({self._end}) does not lie behind --from ({self._start})")
        if self._needs_rest:
            refusal = await look_while_running(settings, _WHY, dry_run=self._dry_run)
        topic = settings.topic
        counts = await partition_counts(settings, [topic])
        tps = [TopicPartition(topic, number) for number in range(counts[topic])]
        before = await committed(settings, settings.app_id, tps)
        if self._needs_rest and set(before.values()) == {None}:
            await self._refuse_unknown_group()
        starts = await offsets_at(settings, tps, self._start)
        if self._end is None:
            starts = await self._not_ahead(starts, before)
            ends = await ends_of(settings, tps)
        else:
            ends = await offsets_at(settings, tps, self._end)
        self._spans = {tp: Span(starts[tp], max(starts[tp], ends[tp])) for tp in tps}
        lines = [
            *refusal,
            f"topic {topic}, from {self._start} to "
            f"{'its end' if self._end is None else self._end}: "
            f"{number_of(records_in(self._spans), 'record')} at most",
        ]
        lines += [self._line(tp, before[tp]) for tp in tps]
        lines += await self._state_lines(before, progress) if self._reset_state else [_INTACT]
        lines.append(_LETTERS if self._end is None else _LETTERS_OF_NEW)
        return lines

    async def _refuse_unknown_group(self) -> None:
        """Raise RecoveryError where there is no trace of a group of this application id."""
        settings = self._settings
        changelogs = [changelog_topic_name(settings, table) for table in TABLES]
        async with kafka_admin(settings) as admin:
            found = await describe_topics(admin, changelogs)
        if not found:
            raise RecoveryError(
                f"the group {settings.app_id} has committed no offset of {settings.topic} and has "
                "no changelogs: is HEARTBEAT_APP_ID the workers'?"
            )

    def _line(self, tp: TopicPartition, before: int | None) -> str:
        span = self._spans[tp]
        if self._end is not None:
            return f"partition {tp.partition}: offsets {span.first} to {span.end} are sent again"
        was = "none" if before is None else before
        becomes = "stays" if before == span.first else f"becomes {span.first}"
        where = f"partition {tp.partition}: the committed offset {was} {becomes}"
        return f"{where}, {number_of(len(span), 'record')} up to the end"

    async def _not_ahead(
        self, starts: dict[TopicPartition, int], before: dict[TopicPartition, int | None]
    ) -> dict[TopicPartition, int]:
        """The same, but nowhere behind what the group has yet to read: that would be skipped."""
        first = await offsets_at(self._settings, starts, Earliest())
        unread = {tp: first[tp] if known is None else known for tp, known in before.items()}
        return {tp: max(first[tp], min(start, unread[tp])) for tp, start in starts.items()}

    async def _state_lines(
        self, before: dict[TopicPartition, int | None], progress: Progress
    ) -> list[str]:
        """What emptying the tables means, which the rooms that are in them have to tell."""
        rooms = lost = 0
        async for partition in read_tables(self._settings, progress):
            for room in partition.rooms():
                rooms += 1
                place = TopicPartition(self._settings.topic, room.stored.source_partition)
                lost += room.pending and not self._comes_again(
                    place, room.stored.source_offset, before.get(place)
                )
        lines = [f"the tables are emptied: {number_of(rooms, 'room')}"]
        if lost:
            lines.append(
                f"of {number_of(lost, 'room')} among them the newest heartbeat is not in the "
                "database yet and will not come again: it would be lost. "
                "`heartbeat-stream replay rows` writes it"
            )
        lines += await self._repartition_lines()
        return lines

    def _comes_again(self, tp: TopicPartition, offset: int, before: int | None) -> bool:
        span = self._spans.get(tp)
        if span is None:
            return False
        if self._end is not None and before is not None and offset >= before:
            return True
        return span.first <= offset < span.end

    async def _repartition_lines(self) -> list[str]:
        settings = self._settings
        if settings.source_keyed:
            return []
        topic = repartition_topic_name(settings)
        counts = await partition_counts(settings, [topic])
        tps = [TopicPartition(topic, number) for number in range(counts[topic])]
        self._passed_over = await ends_of(settings, tps)
        before = await committed(settings, settings.app_id, tps)
        waiting = sum(max(0, end - (before[tp] or 0)) for tp, end in self._passed_over.items())
        count = number_of(waiting, "record")
        return [f"topic {topic}: what waits there is passed over, {count} at most"]

    async def run(self, progress: Progress) -> Sequence[str]:
        settings = self._settings
        if self._needs_rest:
            await refuse_while_running(settings, _WHY)
        done = []
        # Offsets first, then the tables: whoever is cut off in between has tables that know the
        # records which come again, and repeats the command.
        if self._end is None:
            await commit(settings, {tp: span.first for tp, span in self._spans.items()})
            done.append(f"the group {settings.app_id} reads {settings.topic} from {self._start}")
        else:
            sent = await self._send_again(progress)
            done.append(f"{were(sent, 'record')} sent to {settings.topic} again")
        if self._reset_state:
            if self._passed_over:
                await commit(settings, self._passed_over)
            rooms = await discard_tables(settings, progress)
            done.append(f"{were(rooms, 'room')} removed from the tables")
            await refuse_while_running(
                settings, "they were started meanwhile, so the tables may hold something again"
            )
        if self._needs_rest:
            done.append("start the workers again")
        return done

    async def _send_again(self, progress: Progress) -> int:
        """The records of the spans, each to its partition, with a header that tells of it."""
        topic, sent, wanted = self._settings.topic, 0, records_in(self._spans)
        async with open_producer(self._settings) as producer:
            async for tp, records in read_spans(self._settings, self._spans):
                again = [
                    OutRecord(
                        one.key,
                        one.value,
                        trace(one.headers, tp.topic, tp.partition, one.offset),
                    )
                    for one in records
                ]
                await producer.publish(topic, tp.partition, again, None)
                sent += len(again)
                progress(f"{sent:,} of {wanted:,} records sent again")
        return sent


_INTACT = (
    "the tables stay as they are. They know the newest heartbeat of every room, so nothing of this "
    "changes a room or a row, but for rooms that they have lost or never had: --reset-state "
    "empties them first"
)
_LETTERS = (
    "records among them that are no heartbeats become dead letters again; `replay dead-letters` "
    "sends each source record once all the same"
)
_LETTERS_OF_NEW = (
    "records among them that are no heartbeats become dead letters again, of records of their own"
)
