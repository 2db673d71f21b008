"""A worker within this process, so that a fuzzer sees which of its code an input has reached."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from heartbeat_stream.app import Worker
from heartbeat_stream.core.heartbeat import Heartbeat
from heartbeat_stream.local.process import free_port
from heartbeat_stream.local.stack import EmbeddedStack
from heartbeat_stream.settings import Settings
from heartbeat_stream.streaming.datadir import DataDirectory
from heartbeat_stream.web.port import listen
from tests.support.odd_rooms import ODD_ROOMS
from tests.support.oracle import now_ms
from tests.support.wait import wait_until_async
from tests.support.worker import Workers
from tests.support.world import Cluster, World

__all__ = ["WorkerInside"]


class WorkerInside:
    """A worker on the embedded stack which knows some rooms. It lives as long as the loop runs."""

    def __init__(self, stack: EmbeddedStack, loop: asyncio.AbstractEventLoop) -> None:
        directory = Path(tempfile.mkdtemp(prefix="worker-", dir=stack.directory))
        cluster = Cluster(
            "embedded", stack.broker.bootstrap_servers, stack.broker.session_timeout_ms
        )
        self._world = World(cluster, stack.postgres.url, directory, Workers(directory))
        self._loop = loop
        self.port = free_port()

    async def start(self) -> None:
        """Return when it is ready and knows its rooms."""
        world = await self._world.prepare(web_port=self.port)
        await world.send([Heartbeat(7, room, now_ms()) for room in ODD_ROOMS])
        settings = Settings.load(world.environment)
        directory = DataDirectory.claim(settings.data_dir, settings.app_id)
        self.worker = Worker(settings, directory, listen(settings))
        await self.worker.start()
        await wait_until_async(self._is_ready, 60, what="the worker knows its rooms")

    def _is_ready(self) -> bool:
        return bool(
            self.worker.readiness()["ready"]
            and sum(len(shard.rooms) for shard in self.worker.job.shards.values()) >= len(ODD_ROOMS)
        )
