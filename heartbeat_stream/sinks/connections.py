"""A few connections to PostgreSQL, opened when needed and thrown away when in doubt.

asyncpg has a pool, and it is not used for three reasons: it connects while it is created, so a
worker could not start without its database; giving a connection back costs a round trip that
resets a session which nobody has changed; and it waits for an unanswered statement's cancellation,
which a frozen server does not answer, so that its bounds are hard to prove. Here a connection is
either known to be good, or it is cut.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from heartbeat_stream.sinks.postgres_errors import (
    CONNECTING,
    RECONNECT_KINDS,
    SinkUnavailable,
    classify,
)
from heartbeat_stream.sinks.postgres_settings import PATIENCE_MS, PostgresSettings

# A connection that nobody used for longer is not taken up again: a firewall or a NAT on the way may
# have forgotten it without telling, and the first statement would find out by its timeout.
IDLE_SECONDS_MAX = 60.0


class Connections:
    """At most ``settings.pool_size`` connections. For one event loop; not for threads."""

    def __init__(self, settings: PostgresSettings) -> None:
        self._settings = settings
        self._idle: list[tuple[asyncpg.Connection, float]] = []  # with the time of its last use
        self._in_use: set[asyncpg.Connection] = set()
        self._slots = asyncio.Semaphore(settings.pool_size)
        self._none_in_use = asyncio.Event()
        self._none_in_use.set()
        self._stopped = False

    @asynccontextmanager
    async def use(self) -> AsyncIterator[asyncpg.Connection]:
        """Lend a connection; wait for a free one where all are lent.

        Raises SinkUnavailable within the connect timeout if none can be had. A connection is kept
        only if the body ends without an exception: the body must therefore catch the errors after
        which the connection is as good as before (a statement that the server refused).
        """
        async with self._slots:
            connection = await self._take()
            self._in_use.add(connection)
            self._none_in_use.clear()
            kept = False
            try:
                yield connection
                kept = not (self._stopped or connection.is_closed())
            except SinkUnavailable as error:
                if error.kind in RECONNECT_KINDS:
                    self._cut_idle()
                raise
            finally:
                self._in_use.discard(connection)
                if not self._in_use:
                    self._none_in_use.set()
                if kept:
                    self._idle.append((connection, asyncio.get_running_loop().time()))
                else:
                    # Not close(): that asks the server, which may not answer.
                    connection.terminate()

    async def _take(self) -> asyncpg.Connection:
        self._check_not_stopped()
        oldest = asyncio.get_running_loop().time() - IDLE_SECONDS_MAX
        while self._idle:
            # The last one given back: with little to do, the others stay idle and end.
            connection, last_used = self._idle.pop()
            if last_used >= oldest and not connection.is_closed():
                return connection
            connection.terminate()
        connection = await self._connect()
        try:
            self._check_not_stopped()
        except SinkUnavailable:
            connection.terminate()
            raise
        return connection

    async def _connect(self) -> asyncpg.Connection:
        timeout_ms = self._settings.connect_timeout_ms
        try:
            return await asyncpg.connect(
                self._settings.url,
                timeout=timeout_ms / 1000,
                # Bounds asyncpg's own cancel requests, which open a connection of their own.
                command_timeout=(self._settings.statement_timeout_ms + PATIENCE_MS) / 1000,
                statement_cache_size=0 if self._settings.pooler else 100,
                server_settings=self._session_settings(),
            )
        except Exception as error:
            unavailable = classify(error, CONNECTING)
            if isinstance(unavailable, SinkUnavailable):
                raise unavailable from error
            raise

    def _session_settings(self) -> dict[str, str]:
        settings = {"application_name": self._settings.application_name}
        if not self._settings.pooler:  # a pooler refuses them, or hands them to somebody else
            settings["statement_timeout"] = str(self._settings.statement_timeout_ms)
        return settings

    def _check_not_stopped(self) -> None:
        if self._stopped:
            raise SinkUnavailable("stopped", "the sink has been stopped")

    def _cut_idle(self) -> None:
        while self._idle:
            self._idle.pop()[0].terminate()

    async def stop(self, timeout: float) -> None:
        """Close all connections; those still in use after ``timeout`` seconds are cut.

        Their statements then end with SinkUnavailable. Never raises, may be called twice.
        """
        self._stopped = True
        try:
            async with asyncio.timeout(timeout):
                await self._none_in_use.wait()
                for connection, _ in self._idle:
                    await connection.close()
        except (TimeoutError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            pass  # what could not be closed in time is cut
        self._cut_idle()
        for connection in list(self._in_use):
            connection.terminate()
