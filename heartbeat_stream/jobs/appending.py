"""Appending what a job has judged to a table, tried until it is there."""

import asyncio
import logging
import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

from heartbeat_stream.complaints import Complaints
from heartbeat_stream.core.reasons import Reason, Rejected
from heartbeat_stream.sinks.json_statement import JsonStatement
from heartbeat_stream.sinks.postgres_errors import RowFault, SinkUnavailable
from heartbeat_stream.streaming.forwarding import Arrival

__all__ = ["Appender", "Refuse", "RowAppender"]

logger = logging.getLogger(__name__)

_BATCH: Final = 2000
_MOST_WAITING: Final = 20_000
_RETRY_FIRST_S: Final = 0.05
_RETRY_MOST_S: Final = 1.0

#: Makes a dead letter of what the database refuses.
Refuse = Callable[[Arrival, Rejected], Awaitable[None]]

Item = TypeVar("Item")


class RowAppender(ABC, Generic[Item]):
    """Rows on their way into a table that a later acknowledgement of source offsets depends on."""

    def __init__(self, statement: JsonStatement) -> None:
        self._statement = statement
        self._queue: deque[Item] = deque()
        self._put = 0
        self._landed = 0
        self._progress = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None
        self._complaints = Complaints(logger)
        self.last_error: str | None = None

    @abstractmethod
    async def write(self, batch: Sequence[Item]) -> list[tuple[int, RowFault]]:
        """Have the rows of all these in the table but for those answered: those it refuses.

        Raises SinkUnavailable where it does not answer; then it is tried again.
        """

    @abstractmethod
    async def refuse(self, item: Item, why: Rejected) -> None:
        """The database refuses its row."""

    def put(self, items: Sequence[Item]) -> None:
        """Append these. Never waits: see :meth:`room`."""
        self._queue.extend(items)
        self._put += len(items)
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    async def room(self) -> None:
        """Wait while too much is on its way."""
        await self._until(lambda: self._put - self._landed < _MOST_WAITING)

    async def settled(self) -> None:
        """Return when everything that was put before this call has landed."""
        put = self._put
        await self._until(lambda: self._landed >= put)

    async def _until(self, condition: Callable[[], bool]) -> None:
        async with self._progress:
            await self._progress.wait_for(lambda: condition() or self._failed())
        if self._failed() and self._task is not None:
            self._task.result()  # raises the defect

    def _failed(self) -> bool:
        task = self._task
        return task is not None and task.done() and not task.cancelled() and bool(task.exception())

    async def _run(self) -> None:
        try:
            while self._queue:
                batch = [self._queue.popleft() for _ in range(min(_BATCH, len(self._queue)))]
                await self._land(batch)
                self._landed += len(batch)
                async with self._progress:
                    self._progress.notify_all()
        except Exception:  # raised again: whoever waits for progress must wake up to see it
            asyncio.get_running_loop().create_task(self._wake())
            raise
        self._task = None

    async def _wake(self) -> None:
        async with self._progress:
            self._progress.notify_all()

    async def _land(self, batch: Sequence[Item]) -> None:
        pause = _RETRY_FIRST_S
        while True:
            try:
                faults = await self.write(batch)
                break
            except SinkUnavailable as exc:
                self.last_error = str(exc)
                self._complaints.warning("the database takes no messages (%s): trying again", exc)
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, _RETRY_MOST_S)
        self.last_error = None
        for index, fault in faults:
            await self.refuse(batch[index], Rejected(Reason.ROW_REFUSED, fault.detail))

    async def stop(self) -> None:
        """Give up what is still on its way: nothing that depends on it is acknowledged."""
        if self._task is not None:
            self._task.cancel()
        await self._statement.stop(1.0)


class Appender(RowAppender[Arrival]):
    """Appends records as they are."""

    def __init__(self, statement: JsonStatement, topic: str, refuse: Refuse) -> None:
        """``topic``: the source, part of each row's key."""
        super().__init__(statement)
        self._topic = topic
        self._refuse = refuse

    async def write(self, batch: Sequence[Arrival]) -> list[tuple[int, RowFault]]:
        rows = [
            (self._topic, one.partition, one.offset, one.at_ms, one.value.decode()) for one in batch
        ]
        return await self._statement.land(rows)

    async def refuse(self, item: Arrival, why: Rejected) -> None:
        await self._refuse(item, why)
