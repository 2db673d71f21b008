"""Sending made-up reports to a collector, many at a time, as the tabs of many browsers do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import aiohttp

from heartbeat_stream.config.urls import redact_url
from heartbeat_stream.local.record_sender import SendError
from heartbeat_stream.local.sdk_reports import send_report
from heartbeat_stream.local.tracking_traffic import Flush

__all__ = ["ReportSender", "open_door", "send_flush"]

_AT_ONCE = 32
_TIMEOUT_S = 60.0


async def send_flush(session: aiohttp.ClientSession, url: str, flush: Flush) -> int:
    """Send a flush to the collector at ``url``; its answer's status. Raises aiohttp.ClientError."""
    document = flush.events[0] if len(flush.events) == 1 else flush.events
    query = {"project": flush.project}
    if flush.remark is not None:
        query["remark"] = flush.remark
    return await send_report(session, url, flush.form, document, **query)


class ReportSender:
    """An outlet that sends the reports that ``generate`` makes; made by :func:`open_door`."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        generate: Callable[[int, int], Sequence[Flush]],
    ) -> None:
        self._session = session
        self._url = url.rstrip("/")
        self._generate = generate
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._under_way: set[asyncio.Task[None]] = set()
        self._failed: SendError | None = None

    async def send(self, now_ms: int, n: int) -> int:
        """Have so many events on their way. Raises SendError where one was not taken."""
        sent = 0
        for flush in self._generate(now_ms, n):
            await self._room.acquire()
            task = asyncio.create_task(self._send(flush))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
            sent += len(flush.events)
        self._check()
        return sent

    async def flush(self) -> None:
        """Return once all of them are answered. Raises as :meth:`send` does."""
        if self._under_way:
            await asyncio.wait(self._under_way)
        self._check()

    async def _send(self, flush: Flush) -> None:
        try:
            status = await send_flush(self._session, self._url, flush)
            if status != 200:
                why = f"it answers with {status}: see its log"
                self._failed = SendError(f"the collector at {self._shown} takes no report: {why}")
        except (aiohttp.ClientError, TimeoutError) as error:
            why = str(error) or type(error).__name__
            self._failed = SendError(
                f"no collector answers at {self._shown} ({why}): start one with `heartbeat-stream "
                "collect`, or set --url"
            )
        finally:
            self._room.release()

    @property
    def _shown(self) -> str:
        return redact_url(self._url)

    def _check(self) -> None:
        if self._failed is not None:
            raise self._failed

    def close(self) -> None:
        """Give up what is on its way."""
        for task in self._under_way:
            task.cancel()


@asynccontextmanager
async def open_door(
    url: str, generate: Callable[[int, int], Sequence[Flush]]
) -> AsyncIterator[ReportSender]:
    """The way to the collector at ``url``, ``http://host:port``."""
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        sender = ReportSender(session, url, generate)
        try:
            yield sender
        finally:
            sender.close()
