"""The demo's worker: a process of its own, as a user runs it, looked at through its web view."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator, Mapping

import aiohttp

from heartbeat_stream.local.demo.figures import Figures
from heartbeat_stream.local.demo.program import demo_process
from heartbeat_stream.local.process import ServerError, port_is_free
from heartbeat_stream.local.stack import EmbeddedStack
from heartbeat_stream.settings import Settings

__all__ = ["DemoWorker", "start_worker"]

_READY_S = 60.0
_POLL_S = 0.1
#: A worker that keeps silent for longer has failed: its web view shares the loop with its work.
_SILENT_S = 20.0
_END_S = 20.0
_PORTS_TRIED = 100


class DemoWorker:
    """One worker on the stack. It ends with this process, however that ends."""

    def __init__(self, stack: EmbeddedStack, environment: Mapping[str, str], port: int) -> None:
        settings = Settings.load(environment).at_web_port(port)
        self.url = settings.web_url
        self._data_dir = str(settings.data_dir)
        self._answered_at = time.monotonic()
        self._process = demo_process(
            stack, "worker", {**environment, "HEARTBEAT_WEB_PORT": str(port)}
        )
        self._url = f"http://{_reached_at(settings.web_host)}:{port}"
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5.0))

    def start(self) -> None:
        """Start the process. Raises ServerError."""
        self._process.start()

    async def wait_until_ready(self, stop: asyncio.Event) -> None:
        """Return once it is ready, or `stop` is set. Raises ServerError where it ends, or is not
        within a minute."""
        deadline = time.monotonic() + _READY_S
        while not stop.is_set() and not await self._is_ready():
            self.check()
            if time.monotonic() > deadline:
                said = " | ".join(self._process.log_tail())
                raise ServerError(
                    f"the worker was not ready within {_READY_S:g} s; its log ends: {said}"
                )
            await asyncio.sleep(_POLL_S)

    async def _is_ready(self) -> bool:
        try:
            async with self._session.get(f"{self._url}/health/ready") as answer:
                if answer.status != 200:
                    return False
            # Where two demos wanted one port, the other one's worker may answer here.
            return (await self._ask()).directory.startswith(self._data_dir)
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False

    async def figures(self) -> Figures | None:
        """What it says of itself; None where it does not answer at the moment.

        Raises ServerError where it has ended, or has been silent for long.
        """
        try:
            figures = await self._ask()
        except (aiohttp.ClientError, OSError, TimeoutError):
            self.check()
            if time.monotonic() - self._answered_at > _SILENT_S:
                raise ServerError(
                    f"the worker has not answered at {self._url} for {_SILENT_S:g} s"
                ) from None
            return None
        self._answered_at = time.monotonic()
        return figures

    async def _ask(self) -> Figures:
        async with self._session.get(f"{self._url}/metrics") as answer:
            answer.raise_for_status()
            return Figures.read(await answer.text())

    def check(self) -> None:
        """Raises ServerError where it has ended by itself."""
        failure = self._process.failure()
        if failure is not None:
            raise ServerError(failure)

    async def end(self) -> int | None:
        """End it as a user does; its exit code, None where it had to be killed."""
        await self._session.close()
        self._process.send_signal(signal.SIGTERM)
        return await asyncio.to_thread(self._process.wait, _END_S)

    async def close(self) -> None:
        """End it at once if it is still there. Safe to repeat."""
        await self._session.close()
        await asyncio.to_thread(self._process.stop, signal.SIGKILL)


def _reached_at(host: str) -> str:
    """Where to ask a server that listens on this address."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{host}]" if ":" in host else host


async def start_worker(
    stack: EmbeddedStack, environment: Mapping[str, str], stop: asyncio.Event
) -> DemoWorker:
    """A worker that is ready, or, where `stop` is set before that, on its way.

    On the port that was set, or the next free one from the default on. Raises ServerError.
    """
    settings = Settings.load(environment)
    for port in _ports(settings):
        worker = DemoWorker(stack, environment, port)
        try:
            worker.start()
            await worker.wait_until_ready(stop)
        except BaseException as error:
            await worker.close()
            # Free a moment ago, and now taken: somebody else was faster.
            lost = isinstance(error, ServerError) and not port_is_free(port)
            if not lost or settings.web_port_is_set:
                raise
        else:
            return worker
    raise ServerError("no free port for the web view: name one with --web-port")


def _ports(settings: Settings) -> Iterator[int]:
    if settings.web_port_is_set:
        yield settings.web_port
        return
    for port in range(settings.web_port, settings.web_port + _PORTS_TRIED):
        if port_is_free(port):
            yield port
