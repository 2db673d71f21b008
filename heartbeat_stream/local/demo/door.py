"""The demo's collector, and the Redis beside it where its store is one."""

from __future__ import annotations

import asyncio
import json
import signal
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from heartbeat_stream.local.demo.program import demo_process
from heartbeat_stream.local.process import LOOPBACK, ServerError, ServerProcess, free_port
from heartbeat_stream.local.redis import RedisServer, redis_program
from heartbeat_stream.local.stack import EmbeddedStack
from heartbeat_stream.settings import Settings

__all__ = ["check_demo_door", "open_demo_door"]

_READY_S = 60.0
_ASK_S = 5.0
_END_S = 20.0
#: A store on a busy machine may be slow and well. In a demo nobody waits for the answer.
_STORE_WAIT_MS = 5_000


def check_demo_door(settings: Settings) -> None:
    """Raise ServerError where the store is one that this machine does not have."""
    if settings.collect_store == "redis":
        redis_program()


@asynccontextmanager
async def open_demo_door(
    stack: EmbeddedStack, environment: Mapping[str, str]
) -> AsyncIterator[str]:
    """Run a collector on the stack; its URL. On leaving, what it has spooled is in Kafka.

    Raises ServerError where it does not start, or ends otherwise than it should.
    """
    redis = await _redis(Settings.load(environment))
    try:
        port = free_port()
        more = {"HEARTBEAT_COLLECT_REDIS_URL": redis.url} if redis is not None else {}
        process = demo_process(
            stack,
            "collect",
            {
                "HEARTBEAT_COLLECT_STORE_WAIT_MS": str(_STORE_WAIT_MS),
                **environment,
                **more,
                "HEARTBEAT_COLLECT_HOST": LOOPBACK,
                "HEARTBEAT_COLLECT_PORT": str(port),
                "HEARTBEAT_COLLECT_SPOOL_DIR": str(stack.directory / "spool"),
            },
        )
        url = f"http://{LOOPBACK}:{port}"
        try:
            process.start()
            await asyncio.to_thread(process.wait_until_ready, lambda: _has_kafka(url), _READY_S)
            yield url
            await _end(process)
        finally:
            await asyncio.to_thread(process.stop, signal.SIGKILL)
    finally:
        if redis is not None:
            await asyncio.to_thread(redis.close)


async def _redis(settings: Settings) -> RedisServer | None:
    if settings.collect_store != "redis":
        return None
    return await asyncio.to_thread(RedisServer().__enter__)


def _has_kafka(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health/ready", timeout=_ASK_S) as answer:
            return bool(json.load(answer)["kafka"])
    except (OSError, ValueError):
        return False


async def _end(process: ServerProcess) -> None:
    process.send_signal(signal.SIGTERM)
    code = await asyncio.to_thread(process.wait, _END_S)
    if code != 0:
        raise ServerError(f"the collector ended with {code}: see {process.log}")
