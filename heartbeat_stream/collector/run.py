"""How a collector is wired together, and how it starts and ends."""

import asyncio
import logging
import signal
import socket

import uvloop
from aiohttp import web

from heartbeat_stream.clock import Clock
from heartbeat_stream.collector.judging import Judge
from heartbeat_stream.collector.seen.memory import ENTRY_BYTES, MemoryStore
from heartbeat_stream.collector.seen.store import SeenStore
from heartbeat_stream.collector.seen.together import Together
from heartbeat_stream.collector.sender import Sender
from heartbeat_stream.collector.server import make_runner
from heartbeat_stream.collector.service import Service
from heartbeat_stream.collector.spool import Spool
from heartbeat_stream.commands import CommandError
from heartbeat_stream.database import postgres_settings
from heartbeat_stream.settings import Settings
from heartbeat_stream.streaming.datadir import DataDirectory, DataDirectoryError
from heartbeat_stream.streaming.producer import BatchProducer
from heartbeat_stream.streaming.security import kafka_auth

__all__ = ["make_service", "run_collector"]

logger = logging.getLogger(__name__)

_BACKLOG = 1_024
_MIB = 1024 * 1024
_FIRST = "worker-0"


def run_collector(settings: Settings) -> int:
    """Run one collector until SIGINT or SIGTERM; the exit code. Raises :class:`CommandError`."""
    directory = _claim(settings)
    try:
        listening = _listen(settings)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_run(settings, directory, listening))
    finally:
        directory.release()


async def _run(settings: Settings, directory: DataDirectory, listening: socket.socket) -> int:
    stopping = asyncio.Event()
    for signum in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(signum, stopping.set)
    service = make_service(settings, directory)
    service.start()
    runner = make_runner(service)
    await runner.setup()
    await web.SockSite(runner, listening, backlog=_BACKLOG).start()
    logger.info(
        "collecting at http://%s:%d, the spool in %s",
        settings.collect_host,
        listening.getsockname()[1],
        directory.path,
    )
    await stopping.wait()
    logger.info("ending: no more reports, and to Kafka what the spool holds")
    await runner.cleanup()
    service.ending = True
    await service.stop(settings.drain_timeout_ms / 1000)
    left = service.spool.size
    logger.info("ended%s", f" with {left} bytes in the spool, for the next start" if left else "")
    return 0


def make_service(settings: Settings, directory: DataDirectory) -> Service:
    """The parts, not yet started. Within a running event loop."""
    clock = Clock()
    producer = BatchProducer(
        client_id=f"{settings.app_id}-collect",
        request_timeout_ms=10_000,
        bootstrap_servers=list(settings.brokers),
        **kafka_auth(settings),
    )
    topics = (settings.tracking_topic, settings.dead_letter_topic)
    sender = Sender(producer, topics, settings.collect_memory_mb * _MIB)
    try:
        spool = Spool(directory.path, settings.collect_spool_mb * _MIB)
    except OSError as error:
        raise CommandError(_unusable(settings, error)) from error
    judge = None
    if settings.tracking_place == "door":
        _warn_of_memory(settings, directory)
        store = _store(settings, clock)
        judge = Judge(store, wait_s=settings.collect_store_wait_ms / 1000)
    return Service(settings, sender, judge, spool, clock.now_ms)


def _store(settings: Settings, clock: Clock) -> SeenStore:
    """Each question to one elsewhere is a round trip: those of many reports go together."""
    if settings.collect_store == "memory":
        most = min(settings.collect_seen_max, settings.collect_seen_mb * _MIB // ENTRY_BYTES)
        return MemoryStore(most=most, now_ms=clock.now_ms, **_times(settings))
    elsewhere = _redis(settings) if settings.collect_store == "redis" else _postgres(settings)
    return Together(elsewhere, limit_s=settings.collect_store_wait_ms / 1000)


def _redis(settings: Settings) -> SeenStore:
    from heartbeat_stream.collector.seen.redis import RedisStore

    return RedisStore(
        settings.collect_redis_url,
        prefix=f"{settings.app_id}:seen:",
        wait_ms=settings.collect_store_wait_ms,
        **_times(settings),
    )


def _postgres(settings: Settings) -> SeenStore:
    from heartbeat_stream.collector.seen.postgres import ROW_BYTES, PostgresStore

    most = min(settings.collect_seen_max, settings.collect_seen_mb * _MIB // ROW_BYTES)
    return PostgresStore(
        postgres_settings(settings), settings.collect_store_table, most=most, **_times(settings)
    )


def _times(settings: Settings) -> dict[str, int]:
    return {"claim_ms": settings.collect_claim_ms, "window_ms": settings.tracking_window_ms}


def _warn_of_memory(settings: Settings, directory: DataDirectory) -> None:
    if settings.collect_store != "memory":
        return
    if directory.path.name != _FIRST:
        logger.warning(
            "another collector shares %s: with HEARTBEAT_COLLECT_STORE=memory neither knows what "
            "the other has seen. Set redis or postgres, or have the balancer send each client to "
            "one collector",
            settings.collect_spool_dir,
        )
    else:
        logger.info("seen events are remembered in memory: that is for a single collector")


def _claim(settings: Settings) -> DataDirectory:
    try:
        return DataDirectory.claim(settings.collect_spool_dir, f"{settings.app_id}-collect")
    except DataDirectoryError as error:
        text = str(error).replace("HEARTBEAT_DATA_DIR", "HEARTBEAT_COLLECT_SPOOL_DIR")
        raise CommandError(text.replace("data directory", "spool")) from error


def _listen(settings: Settings) -> socket.socket:
    host, port = settings.collect_host, settings.collect_port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise CommandError(
            f"cannot listen on {host}:{port} ({error.strerror or error}): set "
            "HEARTBEAT_COLLECT_HOST or HEARTBEAT_COLLECT_PORT"
        ) from error


def _unusable(settings: Settings, error: OSError) -> str:
    return (
        f"cannot use the spool {settings.collect_spool_dir} ({error.strerror}): set "
        "HEARTBEAT_COLLECT_SPOOL_DIR to a directory that this user may write"
    )
