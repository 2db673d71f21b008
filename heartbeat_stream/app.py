"""How a worker is wired together, and how it starts and ends."""

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
from typing import TYPE_CHECKING, Any, cast

import uvloop
from faust.types import TP

from heartbeat_stream.clock import Clock
from heartbeat_stream.commands import CommandError
from heartbeat_stream.complaints import Complaints
from heartbeat_stream.config.agreement import check_web_exposure
from heartbeat_stream.heap import give_back_freed
from heartbeat_stream.history import History
from heartbeat_stream.jobs.catalogue import job_module, jobs_topics
from heartbeat_stream.jobs.job import House, Job, TopicGrown
from heartbeat_stream.jobs.stream_job import StreamJob
from heartbeat_stream.lag import Lag, LagMeter
from heartbeat_stream.liveness import Liveness
from heartbeat_stream.logs import secrets_of
from heartbeat_stream.loop_monitor import LoopMonitor
from heartbeat_stream.metrics.collector import worker_metrics
from heartbeat_stream.preparing import Prepared, prepare_topics
from heartbeat_stream.recent_errors import RecentErrors
from heartbeat_stream.settings import Settings
from heartbeat_stream.streaming.changelog import ChangelogReader
from heartbeat_stream.streaming.checkpoint import Checkpointer
from heartbeat_stream.streaming.consumer_thread import ClientFailed
from heartbeat_stream.streaming.datadir import DataDirectory, DataDirectoryError
from heartbeat_stream.streaming.dead_letters import DeadLetters
from heartbeat_stream.streaming.engine import Engine
from heartbeat_stream.streaming.faust_app import make_app
from heartbeat_stream.streaming.lanes import Lanes
from heartbeat_stream.streaming.producer import BatchProducer, Outbox, RecordRefused
from heartbeat_stream.streaming.security import kafka_auth
from heartbeat_stream.streaming.store import StoreDamaged, StoreError
from heartbeat_stream.streaming.topic_watch import TopicGone, until_a_topic_is_gone
from heartbeat_stream.streaming.topics import all_topics
from heartbeat_stream.streaming.transactions import TransactionalProducer, Transactions
from heartbeat_stream.web.access import Access
from heartbeat_stream.web.port import listen
from heartbeat_stream.web.summary import figures_of

if TYPE_CHECKING:
    from heartbeat_stream.jobs.heartbeats import HeartbeatJob

__all__ = ["run_worker"]

logger = logging.getLogger(__name__)

#: How often jobs do what is due. Part of the second within which a due room is written.
DRAIN_INTERVAL_S = 0.05
HOUSEKEEPING_INTERVAL_S = 0.5
#: Rooms and heartbeats are not the collector's to see, and what else is made of a batch leaves no
#: cycles: looking for those more rarely is a few percent of the worker's time.
_GC_THRESHOLDS = (50_000, 20, 50)
#: For jobs that are to be quick: how long a fetch of nothing waits, during which other partitions
#: are not asked for, and how long the consumer's thread may wait for its turn.
_SOON_FETCH_WAIT_MS = 20
_SOON_SWITCH_S = 0.001
#: Brokers answer a fetch far sooner, also where there is nothing to be fetched.
_FETCH_LATE_S = 5.0
#: How long Faust may take to end once everything is durable; it is cut off then.
_FAUST_STOP_S = 5.0
#: How often a wait for the group is told.
_WAITING_TOLD_S = 10.0


class Worker:
    """All parts of one worker. Made within a running event loop."""

    def __init__(
        self, settings: Settings, directory: DataDirectory, web_socket: socket.socket
    ) -> None:
        self.settings = settings
        self.topics = jobs_topics(settings)
        self.clock = Clock(not_before_ms=directory.last_time_ms())
        self.directory = directory
        self.web_socket = web_socket
        connection = {"bootstrap_servers": list(settings.brokers), **kafka_auth(settings)}
        self.producer = BatchProducer(
            client_id=settings.app_id, request_timeout_ms=10_000, **connection
        )
        self.outbox = Outbox(self.producer)
        self.lanes: Lanes
        self.reader = ChangelogReader(
            connection,
            trusted_ms=settings.changelog_compaction_lag_ms,
            now_ms=self.clock.now_ms,
        )
        self.loop_monitor = LoopMonitor()
        self._monitoring = asyncio.create_task(self.loop_monitor.run())
        self.parts = Liveness()
        self.metrics = worker_metrics(self)
        self.access = Access(settings.web_token, self.clock.now_ms)
        self.history = History(self.clock.now_ms)
        self.errors = RecentErrors(secrets_of(settings), self.clock.now_ms)
        self.app = make_app(settings, directory.path, web_socket)
        self.transactions = self._make_transactions() if settings.transactions else None
        self.app.worker = self
        if any(topics.soon for topics in self.topics):
            self.app.fetch_wait_ms = _SOON_FETCH_WAIT_MS
            sys.setswitchinterval(_SOON_SWITCH_S)
        self.app.liveness = self.parts
        self._lag_meter: LagMeter[TP] = LagMeter()
        self._ending = False
        self._complaints = Complaints(logger)
        #: Whether the parts below are there: not before the worker knows its topics.
        self.built = False
        self.engine: Engine
        self.jobs: dict[str, Job] = {}
        self.dead_letters: DeadLetters
        self.checkpointer: Checkpointer

    async def start(self) -> None:
        """Connect, create internal topics, join the group. Returns before state is recovered.

        Raises :class:`CommandError` where the cluster is not fit for it.
        """
        logging.getLogger().addHandler(self.errors)
        # From now on, so that a worker which waits for its brokers is not taken for a dead one.
        # Faust, which would start it much later, starts nothing twice.
        await self.app.web.start()
        try:
            prepared = await prepare_topics(self.settings, self.topics)
            await self.producer.start()
            await self._check_transactions()
        except BaseException:  # cancelled, too: a start that failed leaves nothing open
            await self.producer.stop()  # or it complains that nobody did
            await self.app.web.stop()
            raise
        self._build(prepared)
        await self.app.start()
        self._telling = asyncio.create_task(self._tell_of_waiting())

    async def _tell_of_waiting(self) -> None:
        """Say from time to time that the group grants nothing: nobody else does."""
        while True:
            await asyncio.sleep(_WAITING_TOLD_S)
            waited = self.engine.waiting_s
            if waited is not None and waited >= _WAITING_TOLD_S:
                logger.warning(
                    "waiting for the consumer group %s for %.0f s: it grants partitions once its "
                    "members have joined again, or their sessions are over (%d ms)",
                    self.settings.app_id,
                    waited,
                    self.settings.session_timeout_ms,
                )

    def _build(self, prepared: Prepared) -> None:
        settings, app = self.settings, self.app
        dead_letter_topic = settings.dead_letter_topic
        self.dead_letters = DeadLetters(
            self.outbox, dead_letter_topic, prepared.of_topic[dead_letter_topic]
        )
        self.lanes = Lanes(self.producer, self.dead_letters.put_refused)
        self.checkpointer = Checkpointer(
            self.producer, self.outbox, app.consumer, self.clock.now_ms
        )
        self.checkpointer.waits_for(self.lanes.settled)
        house = House(
            settings=settings,
            table=app.state_table,
            outbox=self.outbox,
            lanes=self.lanes,
            transactions=self.transactions,
            dead_letters=self.dead_letters,
            checkpointer=self.checkpointer,
            lease=app.lease,
            now_ms=self.clock.now_ms,
            output_partitions=prepared.of_topic,
        )
        for topics in self.topics:
            name = topics.job
            self.jobs[name] = job_module(name).build(house, topics, prepared.of_job[name])
        self.engine = app.engine = Engine(
            list(self.jobs.values()),
            self.checkpointer,
            self.reader,
            checkpoint_interval_s=settings.checkpoint_ms / 1000,
            release_timeout_s=settings.drain_timeout_ms / 1000,
            fence=self._fence if self.transactions is not None else None,
        )
        for job in self.jobs.values():
            for topic, handle in job.agents().items():
                app.batch_agent(topic, handle)
        app.timer(DRAIN_INTERVAL_S)(self._drain)
        app.timer(HOUSEKEEPING_INTERVAL_S)(self._keep_house)
        app.task(self._checkpoints)
        app.task(self._mind_the_topics)
        self._topics_read = frozenset().union(*(topics.read for topics in self.topics))
        self.built = True

    def _make_transactions(self) -> Transactions:
        settings = self.settings
        connection = {"bootstrap_servers": list(settings.brokers), **kafka_auth(settings)}

        def make(name: str) -> TransactionalProducer:
            return TransactionalProducer(
                client_id=settings.app_id,
                request_timeout_ms=10_000,
                transactional_id=name,
                **connection,
            )

        return Transactions(make, settings.app_id, lambda: self.app.lease.held)

    async def _check_transactions(self) -> None:
        why = await self.transactions.can() if self.transactions is not None else None
        if why is not None:
            raise CommandError(
                f"HEARTBEAT_TRANSACTIONS: the brokers let us make no transactions ({why}): give "
                f"this login Write and Describe on transactional ids that begin with "
                f"{self.settings.app_id}-, or set it to false"
            )

    async def _fence(self) -> None:
        """Nobody else puts out any more what comes of the partitions that are ours."""
        assert self.transactions is not None
        topics = {
            topic
            for one in self.topics
            if isinstance(self.jobs[one.job], StreamJob)
            for topic in one.read
        }
        assigned = self.app.consumer.assignment()
        await self.transactions.own({tp for tp in assigned if tp.topic in topics})

    @property
    def job(self) -> "HeartbeatJob":
        """The main job, where it is among those of this worker."""
        return cast("HeartbeatJob", self.jobs["heartbeats"])

    def job_of(self, table: str) -> Job | None:
        """The job that a table belongs to; None where there is none of that name."""
        for job in self.jobs.values():
            if any(one.name == table for one in job.tables):
                return job
        return None

    @property
    def partitions_owned(self) -> int:
        """Partitions that are ours and recovered, of all jobs."""
        return sum(map(len, self.engine.owned.values()))

    async def _drain(self) -> None:
        self.parts.tick("writing")
        for job in self.jobs.values():
            job.tick()

    async def _keep_house(self) -> None:
        self.parts.tick("housekeeping")
        self.app.ledger.ping(lambda: self.parts.tick("the consumer"))
        self._look_at_the_lease()
        self.clock.check()
        self.directory.note_time(self.clock.now_ms())
        for job in self.jobs.values():
            job.keep_house()
        self._look_at_lag()
        figures = figures_of(self)
        if figures is not None:
            self.history.look(figures)

    def _look_at_the_lease(self) -> None:
        lease = self.app.lease
        if self.partitions_owned and not lease.held:
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
                await self.engine.checkpoint_forever(self._rest)
            except (StoreDamaged, RecordRefused) as exc:
                self.app.fail(exc)

    async def _rest(self, seconds: float) -> None:
        """Between two checkpoints. What the last one needed for a moment is given back."""
        await asyncio.to_thread(give_back_freed)
        await asyncio.sleep(seconds)

    async def _mind_the_topics(self) -> None:
        names = [spec.name for spec in all_topics(self.settings, {}, self.topics)]
        seen = (0, 0)

        def amiss() -> bool:
            """Whether the group has changed, writing has failed, or a partition is not fetched."""
            nonlocal seen
            retries = self.outbox.retries + self.lanes.retries
            before, seen = seen, (self.engine.rebalances, retries)
            fetched = self.app.ledger.fetched(self._topics_read).values()
            return (
                seen != before
                or self.engine.recovering
                or self.engine.last_error is not None
                or any(one.end_age_s > _FETCH_LATE_S for one in fetched if one.end is not None)
            )

        self.app.fail(await until_a_topic_is_gone(self.settings, names, amiss))

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
            "running": not (self._ending or app.should_stop or app.crashed),
        }
        return {
            "ready": all(checks.values()),
            **checks,
            "rebalances": engine.rebalances,
            "partitions": self._partitions_by_job(),
            "session_lapsed": bool(self.partitions_owned) and not app.lease.held,
            "checkpoint_error": engine.last_error,
            **{what: why for job in self.jobs.values() for what, why in job.trouble().items()},
        }

    def _partitions_by_job(self) -> list[int] | dict[str, list[int]]:
        """Those that are ours: a list where there is one job, by its name where there are more."""
        owned = {name: sorted(partitions) for name, partitions in self.engine.owned.items()}
        return next(iter(owned.values())) if len(owned) == 1 else owned

    def lags(self) -> dict[TP, Lag]:
        """How far behind this worker is in each partition that it reads."""
        self._look_at_lag()
        return self._lag_meter.lags(self.clock.now_ms())

    def fetch_age_s(self) -> float | None:
        """How long ago brokers answered a fetch; None where nothing is fetched."""
        fetched = self.app.ledger.fetched(self._topics_read).values()
        return min((one.end_age_s for one in fetched if one.end is not None), default=None)

    async def finish(self) -> None:
        """Stop fetching, do what is due, make everything durable, leave. Bounded."""
        self._ending = True
        timeout = self.settings.drain_timeout_ms / 1000
        self.app.stop_fetching()
        await asyncio.gather(*(job.finish(timeout / 2) for job in self.jobs.values()))
        await self.engine.finish(timeout)

    async def stop(self) -> None:
        """End everything, whatever state it is in. After :meth:`finish` nothing depends on it.

        Raises TimeoutError where that takes too long; it is still going on then.
        """
        self._telling.cancel()
        logging.getLogger().removeHandler(self.errors)
        ending = asyncio.create_task(self._stop_parts())
        # Not cancelled: Faust and aiokafka take that for somebody else's, and go on.
        await asyncio.wait({ending}, timeout=_FAUST_STOP_S)
        if not ending.done():
            logger.warning("cut off while leaving the group: what could be made durable is")
            raise TimeoutError
        ending.result()

    async def _stop_parts(self) -> None:
        await self.app.stop()
        await self.outbox.stop()
        if self.built:
            await self.lanes.stop()
            if self.transactions is not None:
                await self.transactions.close()
        await asyncio.gather(*(job.stop() for job in self.jobs.values()))
        await self.producer.stop()


def run_worker(settings: Settings) -> int:
    """Run one worker until SIGINT or SIGTERM; the exit code.

    Raises :class:`CommandError`, and :class:`SettingsError` where it would be open to others.
    """
    check_web_exposure(settings)
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
