"""The parts of one collector, and what becomes of a report."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from aiokafka.errors import KafkaError

from heartbeat_stream.collector.budget import Budget
from heartbeat_stream.collector.events import ITEM_BYTES, unpack_report
from heartbeat_stream.collector.figures import Figures
from heartbeat_stream.collector.intake import Intake, Rules, Taken
from heartbeat_stream.collector.judging import Judge
from heartbeat_stream.collector.keeping import Keeper, Kept, SpoolFull
from heartbeat_stream.collector.report import Report
from heartbeat_stream.collector.sender import Sender
from heartbeat_stream.collector.spool import Spool
from heartbeat_stream.collector.unpacking import Bounds
from heartbeat_stream.complaints import Complaints
from heartbeat_stream.liveness import Liveness
from heartbeat_stream.settings import Settings
from heartbeat_stream.streaming.producer import describe_error

__all__ = ["Refused", "Service"]

logger = logging.getLogger(__name__)

_CONNECT_AGAIN_S: Final = 1.0
_METADATA_S: Final = 30.0
_DRAIN_LOOK_S: Final = 0.2
_DRAIN_AGAIN_S: Final = 1.0
_CLEAN_S: Final = 1.0
_TICK_S: Final = 0.5


class Refused(Exception):
    """There is no place for a report: neither Kafka nor the spool takes it."""


class Service:
    """Takes reports. Made within a running event loop."""

    def __init__(
        self,
        settings: Settings,
        sender: Sender,
        judge: Judge | None,
        spool: Spool,
        now_ms: Callable[[], int],
    ) -> None:
        self.settings = settings
        self.figures = Figures()
        self.budget = Budget(settings.collect_memory_mb * 1024 * 1024)
        self.sender = sender
        self.judge = judge
        self.spool = spool
        self.now_ms = now_ms
        self.parts = Liveness()
        self.ending = False
        self._bounds = Bounds(settings.collect_unpacked_max_bytes, settings.collect_events_max)
        self._keeper = Keeper(spool)
        self._intake = Intake(_rules(settings, self._bounds), sender, judge, self.figures)
        self._complaints = Complaints(logger)
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to connect, to drain and to clean. Reports are taken from now on."""
        jobs = {"connecting": self._connect, "draining": self._drain, "housekeeping": self._tick}
        if self.judge is not None:
            jobs["cleaning"] = self._clean
        for name, job in jobs.items():
            self._tasks.append(asyncio.create_task(self._watched(name, job)))

    async def _watched(self, name: str, job: Callable[[], Any]) -> None:
        with self.parts.running(name):
            try:
                await job()
            except asyncio.CancelledError:
                raise
            except Exception:  # whatever it was, liveness tells that the part has ended
                logger.exception("a part of the collector has failed: %s", name)

    # -- reports -----------------------------------------------------------------------------------

    async def take(self, report: Report) -> None:
        """Return once Kafka or the disk has a report. Raises :class:`Refused`."""
        ack_wait_s = self.settings.collect_ack_wait_ms / 1000
        try:
            if self.ending or not self.sender.ready:
                await self._keeper.keep(report)
                self.figures.reports["spooled"] += 1
                return
            kept = await self._take_now(report, ack_wait_s)
        except SpoolFull as error:
            self.figures.reports["refused"] += 1
            self._complaints.warning("a report is refused: %s", error)
            raise Refused from error
        self.figures.reports["spooled" if kept else "acknowledged"] += 1

    async def _take_now(self, report: Report, ack_wait_s: float) -> bool:
        """Whether something of it had to be kept on the disk."""
        documents, bad = unpack_report(report, self._bounds)
        cost = _cost(documents)
        if not self.budget.take(cost):
            await self._keeper.keep(report)
            return True
        try:
            taken = await self._intake.take(report, documents, bad, ack_wait_s)
            if taken.unsent:
                await self._keeper.keep_pieces(report, taken.unsent)
        finally:
            self.budget.give_back(cost)
        return bool(taken.unsent)

    # -- what goes on beside -----------------------------------------------------------------------

    async def _connect(self) -> None:
        """Find the brokers and the topics; again from time to time, since partitions are added."""
        if self.judge is not None:
            await self.judge.start()
        while True:
            try:
                await self.sender.connect()
            except (KafkaError, OSError) as error:
                said = describe_error(error) if isinstance(error, KafkaError) else error
                self._complaints.warning(
                    "Kafka or its topics %s, %s cannot be reached (%s): reports go to the spool; "
                    "`heartbeat-stream init` creates topics",
                    self.settings.tracking_topic,
                    self.settings.dead_letter_topic,
                    said,
                )
                await asyncio.sleep(_CONNECT_AGAIN_S)
            else:
                await asyncio.sleep(_METADATA_S)

    async def _drain(self) -> None:
        """Bring what is in the spool to Kafka, in order, one report after the other."""
        while True:
            if not self.sender.ready:
                await asyncio.sleep(_DRAIN_LOOK_S)
                continue
            kept = await self._keeper.next()
            if kept is None:
                await asyncio.sleep(_DRAIN_LOOK_S)
            elif not await self._drained(kept):
                await asyncio.sleep(_DRAIN_AGAIN_S)

    async def _drained(self, kept: Kept) -> bool:
        """Whether an entry is dealt with. The rest of one of which Kafka took a part goes to the
        end of the spool; one of which it took nothing stays where it is."""
        if not kept.sent:
            documents, bad = unpack_report(kept.report, self._bounds)
            cost = _cost(documents)
            await self.budget.wait(cost)
            try:
                taken = await self._intake.take(kept.report, documents, bad, None)
            finally:
                self.budget.give_back(cost)
            if taken.unsent:
                return await self._put_back(kept, taken)
        self.figures.drained += 1
        await self._keeper.done(kept)
        return True

    async def _put_back(self, kept: Kept, taken: Taken) -> bool:
        if taken.nothing_sent:
            return False
        with suppress(SpoolFull):  # then it stays where it is, whole
            await self._keeper.keep_pieces(kept.report, taken.unsent)
            await self._keeper.done(kept)
        return False

    async def _clean(self) -> None:
        assert self.judge is not None
        while True:
            await self.judge.clean()
            await asyncio.sleep(_CLEAN_S)

    async def _tick(self) -> None:
        while True:
            self.parts.tick("housekeeping")
            await asyncio.sleep(_TICK_S)

    # -- health ------------------------------------------------------------------------------------

    def liveness(self) -> dict[str, Any]:
        """Whether the process can make progress; an outage of a server does not count."""
        failed = [] if self.ending else self.parts.failed()
        return {"live": not failed, "failed": failed}

    def readiness(self) -> dict[str, Any]:
        """Whether a report would be taken: by Kafka, or else by the spool."""
        room = not self.spool.full
        taken = self.sender.ready or room
        return {
            "ready": taken and not self.ending,
            "kafka": self.sender.connected,
            "spool_has_room": room,
            "spool_bytes": self.spool.size,
            "ending": self.ending,
        }

    async def stop(self, drain_s: float) -> None:
        """End, after bringing to Kafka what can be brought in so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(drain_s):
                while self.spool.size and self.sender.connected:
                    await asyncio.sleep(0.05)
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        await self.sender.stop()
        await self.spool.close()
        if self.judge is not None:
            await self.judge.stop()


def _cost(documents: list[bytes]) -> int:
    """Bytes that a report takes while it is under way: its texts, twice, and its events."""
    return sum(2 * len(one) + ITEM_BYTES * (1 + one.count(b"distinct_id")) for one in documents)


def _rules(settings: Settings, bounds: Bounds) -> Rules:
    return Rules(
        topic=settings.tracking_topic,
        dead_letter_topic=settings.dead_letter_topic,
        drop=settings.tracking_policy == "drop",
        signup=settings.tracking_signup,
        bounds=bounds,
        pending_wait_s=settings.collect_ack_wait_ms / 1000,
    )
