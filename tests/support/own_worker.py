"""A worker within the test's own process and event loop: to look into it, and to break it."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from heartbeat_stream.app import Worker
from heartbeat_stream.local.process import LOOPBACK
from heartbeat_stream.settings import Settings
from heartbeat_stream.streaming.datadir import DataDirectory
from tests.support.wait import wait_until_async
from tests.support.world import World

__all__ = ["own_worker"]


@asynccontextmanager
async def own_worker(world: World, **environment: object) -> AsyncIterator[Worker]:
    """A worker that is ready, in a world that is prepared."""
    world.set(**environment)
    with socket.create_server((LOOPBACK, 0)) as web_socket:
        settings = Settings.load(world.environment).at_web_port(web_socket.getsockname()[1])
        directory = DataDirectory.claim(settings.data_dir, settings.app_id)
        worker = Worker(settings, directory, web_socket)
        try:
            await worker.start()
            await wait_until_async(
                lambda: worker.readiness()["ready"], 60, what="the worker is ready"
            )
            yield worker
            await worker.finish()
        finally:
            with suppress(TimeoutError):
                await worker.stop()
            if worker.built:
                worker.engine.close()
