"""The Faust application: Faust's parts replaced where this product needs other ones.

Relied upon in faust-streaming 0.15.3: the settings ``ConsumerScheduler`` and ``TableManager``; that
``App.transport`` may be assigned; that the signal ``on_partitions_revoked`` is sent while the
partitions are still ours, with the flow stopped and the buffers cleared; ``App._new_web``.
"""

import asyncio
import socket
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol, cast

import faust
from faust.auth import OAuthCredentials
from faust.types import TP, Message
from yarl import URL

from heartbeat_stream.liveness import Liveness
from heartbeat_stream.settings import Settings
from heartbeat_stream.streaming.consumer_thread import FETCH_WAIT_MS
from heartbeat_stream.streaming.engine import Engine
from heartbeat_stream.streaming.lease import Lease
from heartbeat_stream.streaming.recovery import EagerTableManager
from heartbeat_stream.streaming.security import kafka_auth
from heartbeat_stream.streaming.store import StoreOptions
from heartbeat_stream.streaming.tables import StateTable, Version
from heartbeat_stream.streaming.transport import BatchScheduler, BatchTransport, LedgerConsumer

__all__ = ["EngineApp", "TableMaker", "make_app"]

#: Events, which are batches here, that may wait for an agent. Beyond it fetching pauses.
_BUFFERED_BATCHES = 16

#: How soon the partitions of a topic that has grown are noticed, at the latest.
_METADATA_AGE_MS = 60_000

#: Joining the group and recovering partitions takes less than this.
_TAKEOVER_S = 60.0


class TableMaker(Protocol):
    """Declares a table. Before the app starts. ``expires``: see :class:`StateTable`."""

    def __call__(
        self, name: str, version: Version, partitions: int, expires: Version | None = None
    ) -> StateTable: ...


class EngineApp(faust.App):
    """A Faust app whose state belongs to an engine."""

    engine: Engine
    liveness: Liveness
    lease: Lease
    worker: Any  #: what the web views show
    web_socket: socket.socket
    store_options: StoreOptions  #: shared by all tables
    fetch_wait_ms = FETCH_WAIT_MS

    @property
    def ledger(self) -> LedgerConsumer:
        """The consumer."""
        return cast(LedgerConsumer, self.consumer)

    def state_table(
        self, name: str, version: Version, partitions: int, expires: Version | None = None
    ) -> StateTable:
        """Declare a table. Before the app starts."""
        table = StateTable(
            self,
            name=name,
            partitions=partitions,
            version=version,
            directory=self.conf.tabledir,
            store_options=self.store_options,
            expires=expires,
        )
        self.tables.add(table)
        return table

    def batch_agent(self, topic_name: str, handle: Callable[[Message], Awaitable[None]]) -> None:
        """Have batches of a topic handled one after the other, each acknowledged by a checkpoint.

        Concurrency stays at 1: above it, Faust commits past messages that are still in work.

        What a handler raises ends the worker. Faust would start the agent again, behind the batch
        that failed, and the next checkpoint would commit past it.
        """
        topic = self.topic(
            topic_name,
            key_type=bytes,
            value_type=bytes,
            key_serializer="raw",
            value_serializer="raw",
        )

        name = f"{handle.__name__}.{topic_name}"

        async def consume(stream: Any) -> None:
            with self.liveness.running(f"agent {name}"):
                async for event in stream.noack().events():
                    try:
                        await handle(event.message)
                    except Exception as exc:
                        self.fail(exc)
                        await asyncio.Event().wait()  # no further batch, until this is cancelled

        self.agent(topic, name=name, concurrency=1)(consume)

    def fail(self, reason: Exception) -> None:
        """End the worker because of this: in order, so that what was worked on becomes durable.

        Relied upon: a crash of Faust's own also ends the parts of the app at once, the consumer
        and its commits among them.
        """
        self.crash_reason = reason
        self._crashed.set()

    async def failed(self) -> None:
        """Return when something has ended the worker, which Faust does not tell while it starts."""
        await self._crashed.wait()

    def stop_fetching(self) -> None:
        """No further batch reaches an agent. For the end of the worker."""
        self.consumer.stop_flow()
        self.flow_control.suspend()
        self.flow_control.clear()

    def _new_web(self) -> Any:
        from heartbeat_stream.web.server import StateWeb

        return StateWeb(self)


def _member_name(instance_id: str | None, url: str) -> str | None:
    """The name under which the broker keeps a member that is away; None for one that leaves.

    The URL is part of it. The broker hands a member that is back the assignment of before, in which
    the URL stands, and Faust ends its consumer where that is not its own: so a worker that has
    moved must be another member.
    """
    return instance_id and f"{instance_id}.{zlib.crc32(url.encode()):08x}"


def _patience_s(settings: Settings) -> float:
    """Within this another worker has surely taken over and written what this one knows of."""
    return (settings.buffer_window_ms + settings.cooldown_ms) / 1000 + _TAKEOVER_S


def make_app(settings: Settings, directory: Path, web_socket: socket.socket) -> EngineApp:
    """The app without jobs. Its directory belongs to this worker alone.

    The web view answers on the socket, which listens already; the settings know its port.
    """
    brokers = [URL(f"aiokafka://{broker}") for broker in settings.brokers]
    session_s = settings.session_timeout_ms / 1000
    url = settings.web_url
    app = EngineApp(
        settings.app_id,
        broker=brokers,
        broker_credentials=_credentials(settings),
        datadir=str(directory),
        store="memory://",
        autodiscover=False,
        canonical_url=url,
        web_bind=settings.web_host,
        web_host=settings.web_host,
        web_port=settings.web_port,
        topic_allow_declare=False,
        topic_disable_leader=True,
        topic_partitions=settings.partitions,
        table_standby_replicas=0,
        stream_buffer_maxsize=_BUFFERED_BATCHES,
        stream_wait_empty=False,
        stream_recovery_delay=0.0,
        consumer_group_instance_id=_member_name(settings.group_instance_id, url),
        broker_session_timeout=session_s,
        broker_heartbeat_interval=session_s / 4,
        broker_request_timeout=max(session_s + 5.0, 15.0),
        broker_commit_interval=max(settings.checkpoint_ms / 1000, 1.0),
        consumer_auto_offset_reset="earliest",
        consumer_metadata_max_age_ms=_METADATA_AGE_MS,
        ConsumerScheduler=BatchScheduler,
        TableManager=EagerTableManager,
    )
    app.web_socket = web_socket
    app.store_options = StoreOptions(settings.rocksdb_cache_mb)
    app.lease = Lease(session_s, _patience_s(settings))
    app.transport = BatchTransport(brokers, app)

    async def on_revoked(_app: Any, *args: Any, **_: Any) -> None:
        revoked: set[TP] = args[0]
        await app.engine.release(revoked)

    app.on_partitions_revoked.connect(cast(Any, on_revoked), weak=False)
    return app


def _credentials(settings: Settings) -> faust.auth.Credentials | None:
    """The same for Faust; None where nothing is encrypted and nobody asks who it is."""
    auth = kafka_auth(settings)
    if auth["security_protocol"] == "PLAINTEXT":
        return None
    context = auth.get("ssl_context")
    if "sasl_mechanism" not in auth:
        return faust.SSLCredentials(context)
    if "sasl_oauth_token_provider" in auth:
        return OAuthCredentials(oauth_cb=auth["sasl_oauth_token_provider"], ssl_context=context)
    return faust.SASLCredentials(
        mechanism=auth["sasl_mechanism"],
        username=auth["sasl_plain_username"],
        password=auth["sasl_plain_password"],
        ssl_context=context,
    )
