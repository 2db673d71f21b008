"""How a worker is wired together, and how it starts and ends."""

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
from typing import Any

import uvloop
from aiokafka.errors import KafkaError
from faust.types import TP

from heartbeat_stream.clock import Clock
from heartbeat_stream.commands import CommandError
from heartbeat_stream.complaints import Complaints
from heartbeat_stream.database import postgres_settings
from heartbeat_stream.jobs.heartbeat_tables import (
    LATEST,
    WRITTEN,
    latest_version,
    written_version,
)
from heartbeat_stream.jobs.heartbeats import HeartbeatJob, TopicGrown
from heartbeat_stream.lag import Lag, LagMeter
from heartbeat_stream.liveness import Liveness
from heartbeat_stream.loop_monitor import LoopMonitor
from heartbeat_stream.metrics.collector import worker_metrics
from heartbeat_stream.settings import Settings
from heartbeat_stream.sinks.postgres import PostgresSink, Table
from heartbeat_stream.streaming.changelog import ChangelogReader
from heartbeat_stream.streaming.checkpoint import Checkpointer
from heartbeat_stream.streaming.consumer_thread import ClientFailed
from heartbeat_stream.streaming.datadir import DataDirectory, DataDirectoryError
from heartbeat_stream.streaming.dead_letters import DeadLetters
from heartbeat_stream.streaming.engine import Engine
from heartbeat_stream.streaming.faust_app import make_app
from heartbeat_stream.streaming.producer import BatchProducer, Outbox, RecordRefused
from heartbeat_stream.streaming.security import kafka_auth
from heartbeat_stream.streaming.store import StoreDamaged, StoreError, StoreOptions
from heartbeat_stream.streaming.topic_admin import (
    TopicError,
    describe_topics,
    ensure_topics,
    kafka_admin,
)
from heartbeat_stream.streaming.topic_watch import TopicGone, until_a_topic_is_gone
from heartbeat_stream.streaming.topics import (
    all_topics,
    internal_topics,
    repartition_topic_name,
    state_topic_name,
)
from heartbeat_stream.web.port import listen

__all__ = ["run_worker"]

logger = logging.getLogger(__name__)

#: How often due rooms are looked for. Part of the second within which a due room is written.
DRAIN_INTERVAL_S = 0.05
HOUSEKEEPING_INTERVAL_S = 0.5
#: Rooms and heartbeats are not the collector's to see, and what else is made of a batch leaves no
#: cycles: looking for those more rarely is a few percent of the worker's time.
_GC_THRESHOLDS = (50_000, 20, 50)
#: Brokers answer a fetch far sooner, also where there is nothing to be fetched.
_FETCH_LATE_S = 5.0
#: How long Faust may take to end once everything is durable; it is cut off then.
_FAUST_STOP_S = 5.0


class Worker:
    """All parts of one worker. Made within a running event loop."""

    def __init__(
        self, settings: Settings, directory: DataDirectory, web_socket: socket.socket
    ) -> None:
        self.settings = settings
        self.clock = Clock(not_before_ms=directory.last_time_ms())
        self.directory = directory
        self.web_socket = web_socket
        connection = {"bootstrap_servers": list(settings.brokers), **kafka_auth(settings)}
        self.producer = BatchProducer(
            client_id=settings.app_id, request_timeout_ms=10_000, **connection
        )
        self.outbox = Outbox(self.producer)
        self.sink = PostgresSink(postgres_settings(settings), Table.parse(settings.table))
        self.reader = ChangelogReader(connection)
        self.loop_monitor = LoopMonitor()
        self._monitoring = asyncio.create_task(self.loop_monitor.run())
        self.parts = Liveness()
        self.metrics = worker_metrics(self)
        self.app = make_app(settings, directory.path, web_socket)
        self.app.worker = self
        self.app.liveness = self.parts
        self._lag_meter: LagMeter[TP] = LagMeter()
        self._ending = False
        self._complaints = Complaints(logger)
        #: Whether the parts below are there: not before the worker knows its topics.
        self.built = False
        self.engine: Engine
        self.job: HeartbeatJob
        self.dead_letters: DeadLetters
        self.checkpointer: Checkpointer

    async def start(self) -> None:
        """Connect, create internal topics, join the group. Returns before state is recovered.

        Raises :class:`CommandError` where the cluster is not fit for it.
        """
        # From now on, so that a worker which waits for its brokers is not taken for a dead one.
        # Faust, which would start it much later, starts nothing twice.
        await self.app.web.start()
        try:
            partitions, dead_letter_partitions = await self._prepare_topics()
            await self.producer.start()
        except BaseException:
            await self.producer.stop()  # or it complains that nobody did
            await self.app.web.stop()
            raise
        self._build(partitions, dead_letter_partitions)
        await self.app.start()

    def _build(self, partitions: int, dead_letter_partitions: int) -> None:
        settings, app = self.settings, self.app
        self.dead_letters = DeadLetters(
            self.outbox, settings.dead_letter_topic, dead_letter_partitions
        )
        self.checkpointer = Checkpointer(
            self.producer, self.outbox, app.consumer, self.clock.now_ms
        )
        options = StoreOptions(settings.rocksdb_cache_mb)
        latest = app.state_table(LATEST, latest_version, partitions, options)
        written = app.state_table(WRITTEN, written_version, partitions, options)
        self.job = HeartbeatJob(
            settings,
            latest=latest,
            written=written,
            sink=self.sink,
            outbox=self.outbox,
            dead_letters=self.dead_letters,
            checkpointer=self.checkpointer,
            repartition_topic=repartition_topic_name(settings),
            partitions=partitions,
            now_ms=self.clock.now_ms,
            lease=app.lease,
        )
        self.engine = app.engine = Engine(
            [self.job],
            self.checkpointer,
            self.reader,
            checkpoint_interval_s=settings.checkpoint_ms / 1000,
            release_timeout_s=settings.drain_timeout_ms / 1000,
        )
        app.batch_agent(state_topic_name(settings), self.job.absorb)
        if not settings.source_keyed:
            app.batch_agent(settings.topic, self.job.ingest)
        app.timer(DRAIN_INTERVAL_S)(self._drain)
        app.timer(HOUSEKEEPING_INTERVAL_S)(self._keep_house)
        app.task(self._checkpoints)
        app.task(self._mind_the_topics)
        self._topics_read = {settings.topic, state_topic_name(settings)}
        self.built = True

    async def _drain(self) -> None:
        self.parts.tick("writing")
        self.job.write_due()

    async def _keep_house(self) -> None:
        self.parts.tick("housekeeping")
        self.app.ledger.ping(lambda: self.parts.tick("the consumer"))
        self._look_at_the_lease()
        self.clock.check()
        self.directory.note_time(self.clock.now_ms())
        self.job.keep_house()
        self._look_at_lag()

    def _look_at_the_lease(self) -> None:
        lease = self.app.lease
        if self.engine.owned[self.job.name] and not lease.held:
            self._complaints.warning(
                "the group's coordinator has not answered for %.1f s, so partitions of ours may be "
                "another worker's by now: nothing is taken in and written until it does",
                lease.age_s,
            )

    def _look_at_lag(self) -> None:
        fetched = self.app.ledger.fetched(self._topics_read)
        self._lag_meter.look(fetched, self.checkpointer.handled, self.clock.now_ms())

    async def _checkpoints(self) -> None:
        with self.parts.running("checkpoints"):
            try:
                await self.engine.checkpoint_forever(asyncio.sleep)
            except (StoreDamaged, RecordRefused) as exc:
                self.app.fail(exc)

    async def _mind_the_topics(self) -> None:
        names = [spec.name for spec in all_topics(self.settings, {})]
        seen = (0, 0)

        def amiss() -> bool:
            """Whether the group has changed, writing has failed, or a partition is not fetched."""
            nonlocal seen
            before, seen = seen, (self.engine.rebalances, self.outbox.retries)
            fetched = self.app.ledger.fetched(self._topics_read).values()
            return (
                seen != before
                or self.engine.recovering
                or self.engine.last_error is not None
                or any(one.end_age_s > _FETCH_LATE_S for one in fetched if one.end is not None)
            )

        self.app.fail(await until_a_topic_is_gone(self.settings, names, amiss))

    async def _prepare_topics(self) -> tuple[int, int]:
        """Wait for the brokers and the topics; answer the partition counts of state and dead
        letters."""
        settings = self.settings
        complaints = Complaints(logger)
        missing = ""
        try:
            async with asyncio.timeout(settings.startup_timeout_ms / 1000):
                while True:
                    try:
                        found = await self._look_at_topics()
                    except (KafkaError, OSError) as exc:
                        missing = f"no broker answers at {','.join(settings.brokers)}"
                        complaints.warning("%s (%r): waiting", missing, exc)
                    else:
                        if isinstance(found, tuple):
                            return found
                        missing = found
                        complaints.warning("%s: waiting", missing)
                    await asyncio.sleep(0.5)
        except TimeoutError:
            raise CommandError(
                f"{missing} after {settings.startup_timeout_ms} ms: check HEARTBEAT_BROKERS and "
                "HEARTBEAT_TOPIC, or create the topics with: heartbeat-stream init"
            ) from None

    async def _look_at_topics(self) -> tuple[int, int] | str:
        settings = self.settings
        async with kafka_admin(settings) as admin:
            specs = all_topics(settings, {})
            existing = await describe_topics(admin, [spec.name for spec in specs])
            for name in (settings.topic, settings.dead_letter_topic):
                if name not in existing:
                    return f"the topic {name} does not exist"
            source = existing[settings.topic]
            repartition = existing.get(repartition_topic_name(settings))
            wanted = internal_topics(
                settings,
                source.partitions,
                source_retention_ms=source.retention_ms,
                repartition_partitions=repartition.partitions if repartition else None,
            )
            try:
                for name in await ensure_topics(admin, wanted):
                    logger.info("created topic %s", name)
            except TopicError as exc:
                raise CommandError(str(exc)) from exc
            state = wanted[-1].partitions
            for spec in wanted:
                have = existing.get(spec.name)
                if have is not None and have.partitions != spec.partitions:
                    raise CommandError(
                        f"the topic {state_topic_name(settings)} has {spec.partitions} partitions, "
                        f"but {spec.name} has {have.partitions}: a room's state would be looked "
                        "for in the wrong partition. Set another HEARTBEAT_APP_ID, whose tables "
                        "are then rebuilt from the topic"
                    )
            return state, existing[settings.dead_letter_topic].partitions

    # -- what the web views show -------------------------------------------------------------------

    def liveness(self) -> dict[str, Any]:
        """Whether the process can make progress. Outages of Kafka or PostgreSQL do not count."""
        crashed = self.app.crashed
        ending = self._ending or self.app.should_stop
        failed = ["the worker has failed"] if crashed else [] if ending else self.parts.failed()
        return {"live": not failed, "failed": failed}

    def readiness(self) -> dict[str, Any]:
        """Whether an assignment has come, its state is recovered, and the loop is running."""
        if not self.built:
            return {
                "ready": False,
                "assigned": False,
                "recovered": False,
                "running": False,
                "partitions": [],
                "waiting_for": "the brokers and the topics",
            }
        engine, app = self.engine, self.app
        checks = {
            "assigned": engine.assigned,
            "recovered": engine.assigned and not engine.recovering and not app.rebalancing,
            "running": not app.should_stop and not app.crashed,
        }
        return {
            "ready": all(checks.values()),
            **checks,
            "rebalances": engine.rebalances,
            "partitions": sorted(engine.owned[self.job.name]),
            "session_lapsed": bool(engine.owned[self.job.name]) and not app.lease.held,
            "checkpoint_error": engine.last_error,
            "database_error": self.job.drain.last_error,
        }

    def lags(self) -> dict[TP, Lag]:
        """How far behind this worker is in each partition that it reads."""
        self._look_at_lag()
        return self._lag_meter.lags(self.clock.now_ms())

    def fetch_age_s(self) -> float | None:
        """How long ago brokers answered a fetch; None where nothing is fetched."""
        fetched = self.app.ledger.fetched(self._topics_read).values()
        return min((one.end_age_s for one in fetched if one.end is not None), default=None)

    def look_up(self, table: str, key: bytes) -> Any | None:
        """A key's value as it is now, whatever is checkpointed of it; None if it is not known."""
        found = self.job.find(key)
        if found is None:
            return None
        newest, written = found
        return newest if table == LATEST else written

    async def finish(self) -> None:
        """Stop fetching, write what is due, make everything durable, leave. Bounded."""
        self._ending = True
        settings = self.settings
        timeout = settings.drain_timeout_ms / 1000
        self.app.stop_fetching()
        await self._write_due(timeout / 2)
        await self.engine.finish(timeout)

    async def _write_due(self, timeout_s: float) -> None:
        """Give rooms that are due by now the chance to be written."""
        try:
            async with asyncio.timeout(timeout_s):
                job = self.job
                while job.may_write and job.drain.is_open and job.schedule.due(self.clock.now_ms()):
                    self.job.write_due()
                    await asyncio.sleep(DRAIN_INTERVAL_S)
        except TimeoutError:
            logger.warning("not everything that is due was written in time: it stays pending")

    async def stop(self) -> None:
        """End everything, whatever state it is in. After :meth:`finish` nothing depends on it."""
        try:
            async with asyncio.timeout(_FAUST_STOP_S):
                await self.app.stop()
                await self.outbox.stop()
                await self.sink.stop(1.0)
                await self.producer.stop()
        except TimeoutError:
            logger.warning("cut off while leaving the group: everything is durable")
            raise


def run_worker(settings: Settings) -> int:
    """Run one worker until SIGINT or SIGTERM; the exit code. Raises :class:`CommandError`."""
    try:
        directory = DataDirectory.claim(settings.data_dir, settings.app_id)
    except DataDirectoryError as exc:
        raise CommandError(str(exc)) from exc
    web_socket = listen(settings)
    settings = settings.at_web_port(web_socket.getsockname()[1])
    logger.info("state in %s, web view on port %d", directory.path, settings.web_port)
    loop = uvloop.new_event_loop()
    asyncio.set_event_loop(loop)
    code = loop.run_until_complete(_run(settings, directory, web_socket))
    # Everything is durable, or was said not to be. Libraries' threads and tasks that are still
    # there, after a crash above all, could only keep the process from ending.
    _exit_now(code)
    return code


async def _run(settings: Settings, directory: DataDirectory, web_socket: socket.socket) -> int:
    stopping = asyncio.Event()
    _on_signals(stopping)
    worker = Worker(settings, directory, web_socket)
    starting = asyncio.create_task(worker.start())
    signalled = asyncio.create_task(stopping.wait())
    failed = asyncio.create_task(worker.app.failed())
    await asyncio.wait({starting, signalled, failed}, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
        await asyncio.wait({starting})
        if failed.done():
            _say_why(worker.app.crash_reason)
            return 1
        logger.info("ended before it had started")
        return 0
    failed.cancel()
    await starting
    # What lives as long as the worker need not be looked at by the garbage collector.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    crashed = await worker.app.wait_for_stopped(signalled)
    if crashed:
        _say_why(worker.app.crash_reason)
    else:
        logger.info("ending: writing what is due and making it durable")
    await worker.finish()
    code = 1 if crashed else 0
    try:
        await worker.stop()
    except TimeoutError:
        # Faust may hang for a minute where the broker is gone or a join is under way.
        _exit_now(code)
    worker.engine.close()
    logger.info("ended")
    return code


def _say_why(reason: BaseException | None) -> None:
    if isinstance(reason, (StoreError, TopicGrown, TopicGone, RecordRefused, ClientFailed)):
        logger.error("%s", reason)  # for the operator, who does not need a traceback
    else:
        logger.error("the worker failed: %r", reason, exc_info=reason)


def _on_signals(stopping: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        if stopping.is_set():
            logger.warning("second signal: ending at once")
            _exit_now(1)
        stopping.set()

    for signum in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signum, on_signal)


def _exit_now(code: int) -> None:
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
