"""Records on their way to topics in which their order counts: a lane for each partition.

An :class:`~heartbeat_stream.streaming.producer.Outbox` tries several batches of a partition at
once, so that one which is tried again may come after a later one. Here the next batch of a lane
goes only when the one before it is acknowledged; what comes meanwhile goes with it. So a lane is
fast because its batches grow, and a record that comes alone goes at once.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from aiokafka.errors import KafkaError

from heartbeat_stream.complaints import Complaints
from heartbeat_stream.streaming.producer import (
    BatchProducer,
    OutRecord,
    RecordRefused,
    describe_error,
)

__all__ = ["Lanes"]

logger = logging.getLogger(__name__)

#: Records of one batch: with larger ones, an error would have more of them written twice.
_BATCH_RECORDS: Final = 4000
_BATCH_BYTES: Final = 400 * 1024
#: Records under way, of all lanes together, beyond which whoever puts more has to wait.
_MOST_WAITING: Final = 50_000
_RETRY_FIRST_S: Final = 0.1
_RETRY_MOST_S: Final = 1.0


#: Told of the topic, and of the record that it does not take.
Refuse = Callable[[str, OutRecord], Awaitable[None]]


class Lanes:
    """Each record is tried until the broker has it, in the order of its lane.

    What a topic will never take is handed to ``refuse``, and left out.
    """

    def __init__(self, producer: BatchProducer, refuse: Refuse) -> None:
        self._producer = producer
        self._refuse = refuse
        self._lanes: dict[tuple[str, int], _Lane] = {}
        self._room = asyncio.Event()
        self._room.set()
        self._complaints = Complaints(logger)
        self.waiting = 0
        self.retries = 0
        self._defect: BaseException | None = None

    def put(self, topic: str, partition: int, records: Sequence[OutRecord]) -> None:
        """Hand records over. Never waits: see :meth:`room`."""
        lane = self._lanes.get((topic, partition))
        if lane is None:
            lane = self._lanes[topic, partition] = _Lane(topic, partition)
        lane.queue.extend(records)
        lane.put += len(records)
        self._count(len(records))
        if lane.task is None:
            lane.task = asyncio.create_task(self._run(lane))
            lane.task.add_done_callback(self._done)

    async def room(self) -> None:
        """Wait while too much is under way."""
        await self._room.wait()

    def _count(self, more: int) -> None:
        self.waiting += more
        if self.waiting >= _MOST_WAITING:
            self._room.clear()
        else:
            self._room.set()

    async def _run(self, lane: "_Lane") -> None:
        try:
            while lane.queue:
                batch = lane.take()
                await self._deliver(lane, batch)
                lane.landed += len(batch)
                self._count(-len(batch))
                lane.wake()
        finally:
            lane.task = None

    def _done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (exc := task.exception()) is not None:
            self._defect = exc
            for lane in self._lanes.values():
                lane.wake_all()

    async def _deliver(self, lane: "_Lane", batch: Sequence[OutRecord]) -> None:
        pause = _RETRY_FIRST_S
        while True:
            try:
                await self._producer.publish(lane.topic, lane.partition, batch, None)
                return
            except RecordRefused:
                if len(batch) == 1:
                    await self._refuse(lane.topic, batch[0])
                    return
                raise
            except KafkaError as exc:
                self.retries += 1
                self._complaints.warning(
                    "cannot write to topic %s (%s): trying again", lane.topic, describe_error(exc)
                )
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, _RETRY_MOST_S)

    async def settled(self) -> None:
        """Return when everything that was put before this call is acknowledged."""
        waits = [lane.until(lane.put) for lane in self._lanes.values() if lane.landed < lane.put]
        if waits and self._defect is None:
            await asyncio.gather(*waits)
        if self._defect is not None:
            raise self._defect

    async def stop(self) -> None:
        """Give up what is still under way: the offsets that depend on it were not committed."""
        tasks = [lane.task for lane in self._lanes.values() if lane.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


class _Lane:
    """What goes to one partition of one topic."""

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.queue: deque[OutRecord] = deque()
        self.put = 0
        self.landed = 0
        self.task: asyncio.Task[None] | None = None
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []

    def take(self) -> list[OutRecord]:
        """The next batch: at least one record, and no more bytes than a batch may have."""
        batch: list[OutRecord] = []
        size = 0
        while self.queue and len(batch) < _BATCH_RECORDS:
            record = self.queue[0]
            size += len(record.key or b"") + len(record.value or b"")
            if batch and size > _BATCH_BYTES:
                break  # so what is too large for a topic goes alone
            batch.append(self.queue.popleft())
        return batch

    def until(self, landed: int) -> "asyncio.Future[None]":
        """Done when so many of all records have landed, or none will any more."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((landed, future))
        return future

    def wake(self) -> None:
        self._wake(lambda landed: landed <= self.landed)

    def wake_all(self) -> None:
        self._wake(lambda landed: True)

    def _wake(self, over: Callable[[int], bool]) -> None:
        for landed, future in self._waiters:
            if over(landed) and not future.done():
                future.set_result(None)
        self._waiters = [one for one in self._waiters if not one[1].done()]
