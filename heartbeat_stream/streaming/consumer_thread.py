"""Faust's consumer thread, made to outlast brokers that are away or answer with errors.

Faust ends the worker for any error of a commit; here a commit that fails is simply made again with
the next checkpoint. aiokafka's coordinator hands an error that it cannot mend to whoever calls
``getmany``, and stands still until then; Faust reads past that method, so a worker would be up and
idle for ever. Here somebody looks, and has it join the group anew.

A topic that was just created is not known to every broker at once, and Faust assigns nothing of one
that it does not see, until aiokafka looks again, a minute later at worst. Here it looks at once.

Relied upon in faust-streaming 0.15.3 and aiokafka 0.14: the private methods overridden here;
``Coordinator._send_req`` sends every request to the coordinator; ``check_errors`` hands over an
error once and lets the coordinator go on; ``_metadata_snapshot`` holds how many partitions of each
topic an assignment was made for, and the coordinator joins anew when metadata says otherwise.
``tests/faults/test_coordinator.py`` and ``test_metadata.py`` break where that changes.
"""

import asyncio
import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError, KafkaTimeoutError
from aiokafka.protocol.group import HeartbeatRequest, SyncGroupRequest
from aiokafka.structs import OffsetAndMetadata, TopicPartition
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread
from faust.types import TP
from mode import Service

from heartbeat_stream.complaints import Complaints
from heartbeat_stream.streaming.fetching import fetch_raw_records
from heartbeat_stream.streaming.lease import Lease, steady_s

__all__ = ["ClientFailed", "PositionThread"]

logger = logging.getLogger(__name__)

#: How long a broker may hold back the answer to a fetch that finds nothing, unless a job wants
#: less. Most answer as soon as something comes, but not all: some only look again after half of it.
FETCH_WAIT_MS: Final = 200

#: aiokafka tries for ever what may be tried again. Two such calls at once would block the thread.
_COMMIT_S: Final = 5.0
_SEEK_S: Final = 10.0

_LOOK_S: Final = 0.5
_NO_ERROR: Final = 0
_REBALANCE_IN_PROGRESS: Final = 27


class ClientFailed(Exception):
    """A task of aiokafka has ended that the consumer cannot do without: only a restart helps."""

    def __init__(self, task: str, why: BaseException | None) -> None:
        super().__init__(f"the Kafka client's {task} has ended ({why!r}): start the worker again")


class PositionThread(AIOKafkaConsumerThread):
    """Faust's consumer thread, which also tells the position behind what it has fetched."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._complaints = Complaints(logger)
        self._pushed: KafkaError | None = None

    async def on_start(self) -> None:
        await super().on_start()
        fetch_raw_records(self._consumer)
        self._renew_lease(self.app.lease)  # type: ignore[attr-defined]

    def verify_event_path(self, now: float, tp: TP) -> None:
        """Faust's look for partitions that are stuck. Of one whose offset is not known yet, or no
        more, as after its topic was deleted, it would raise AssertionError."""
        with suppress(AssertionError):
            super().verify_event_path(now, tp)

    def _create_worker_consumer(self, transport: Any) -> Any:
        consumer = super()._create_worker_consumer(transport)
        # Relied upon: aiokafka reads both when it starts. Faust fixes the wait at 1.5 s.
        consumer._fetch_max_wait_ms = self.app.fetch_wait_ms  # type: ignore[attr-defined]
        # A heartbeat of a transaction that was aborted was never sent.
        consumer._isolation_level = "read_committed"
        return consumer

    # -- the group's coordinator -----------------------------------------------------------------

    def _renew_lease(self, lease: Lease) -> None:
        coordinator = self._ensure_consumer()._coordinator
        send = coordinator._send_req

        async def send_and_note(request: Any) -> Any:
            asked_at = steady_s()
            answer = await send(request)
            if _grants_the_session(request, answer):
                lease.renew(asked_at)
            return answer

        coordinator._send_req = send_and_note

    @Service.task
    async def _mind_the_client(self) -> None:
        while not self.should_stop:
            await self.sleep(_LOOK_S)
            consumer = self._ensure_consumer()
            for name, task in (
                ("coordination", consumer._coordinator._coordination_task),
                ("fetching", consumer._fetcher._fetch_task),
                ("metadata", consumer._client._sync_task),
            ):
                if task.done() and not (self.should_stop or consumer._closed):
                    why = None if task.cancelled() else task.exception()
                    fail = self.app.fail  # type: ignore[attr-defined]
                    self.parent_loop.call_soon_threadsafe(fail, ClientFailed(name, why))
                    return
            self._take_pushed_error(consumer._coordinator)
            if 0 in consumer._coordinator._metadata_snapshot.values():
                consumer._client.force_metadata_update()

    def _take_pushed_error(self, coordinator: Any) -> None:
        try:
            coordinator.check_errors()
        except KafkaError as exc:
            self._pushed = exc
            self._complaints.warning("the group's coordinator says %r: joining again", exc)
            # Whatever has ended with the error, the heartbeats above all, begins anew with that.
            coordinator.request_rejoin()

    async def _fetch_records(self, consumer: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            records = await super()._fetch_records(consumer, *args, **kwargs)
        except KafkaError as exc:
            if not self._is_pushed(exc, consumer._coordinator):
                raise
            return {}
        self.consumer.note_fetched(records, consumer)  # type: ignore[attr-defined]
        return records

    def _is_pushed(self, exc: KafkaError, coordinator: Any) -> bool:
        """aiokafka lets go with a copy of the coordinator's error whoever waits for records."""
        pushed = [one for one in (self._pushed, coordinator._pending_exception) if one is not None]
        return any(type(one) is type(exc) and one.args == exc.args for one in pushed)

    # -- offsets ---------------------------------------------------------------------------------

    async def _commit(self, offsets: Mapping[TP, int]) -> bool:
        """Whether the broker has them. Never raises what brokers cause."""
        wanted = {
            TopicPartition(tp.topic, tp.partition): OffsetAndMetadata(offset, "")
            for tp, offset in offsets.items()
        }
        try:
            async with asyncio.timeout(_COMMIT_S):
                await self._ensure_consumer().commit(wanted)
        except (CommitFailedError, IllegalStateError):
            return False  # a rebalance has come between: nothing is lost, it is read again
        except (KafkaError, TimeoutError) as exc:
            self._complaints.warning(
                "offsets cannot be committed (%s): trying again with the next checkpoint",
                repr(exc) if str(exc) else "no answer",
            )
            return False
        # Or Faust says after five minutes, again and again, that nothing is committed.
        self.tp_last_committed_at.update(dict.fromkeys(offsets, time.monotonic()))
        return True

    async def seek_to_committed(self) -> Mapping[TP, int]:
        offsets: Mapping[TP, int] = await self.call_thread(self._seek_to_committed)
        return offsets

    async def _seek_to_committed(self) -> Mapping[TP, int | None]:
        """Also back to the start where nothing is committed yet.

        A fetch that a rebalance interrupts has moved the position, and its records went nowhere.
        aiokafka leaves such a partition where it is if it has no committed offset; the records
        would be lost, and the position be committed in the end. Raises KafkaError.
        """
        consumer = self._ensure_consumer()
        try:
            async with asyncio.timeout(_SEEK_S):
                offsets: Mapping[TP, int | None] = await consumer.seek_to_committed()
                never = [tp for tp, offset in offsets.items() if not offset]
                if never:
                    await consumer.seek_to_beginning(*never)
        except TimeoutError:
            raise KafkaTimeoutError("no answer about committed offsets") from None
        return offsets

    # -- the end ---------------------------------------------------------------------------------

    def _stopped_set(self) -> None:
        # After a crash the thread's loop may be closed, and has nobody to be told.
        with suppress(RuntimeError):
            super()._stopped_set()

    async def on_thread_stop(self) -> None:
        # With the broker away, aiokafka lets out that it has cancelled its own fetches.
        with suppress(asyncio.CancelledError, KafkaError):
            await super().on_thread_stop()


def _grants_the_session(request: Any, answer: Any) -> bool:
    """Whether the coordinator counts the member as alive from its arrival on."""
    if isinstance(request, HeartbeatRequest):
        return answer.error_code in (_NO_ERROR, _REBALANCE_IN_PROGRESS)
    return isinstance(request, SyncGroupRequest) and answer.error_code == _NO_ERROR
