"""Faust's web server with this product's views beside and in place of its own."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, ClassVar, cast

from aiohttp.web import (
    Application,
    AppRunner,
    BaseSite,
    Server,
    SockSite,
)
from faust.web.drivers.aiohttp import Web
from yarl import URL

from heartbeat_stream.web.door import Door
from heartbeat_stream.web.health import blueprint as health
from heartbeat_stream.web.limits import HEAD_S, LIMITS, LimitedServer
from heartbeat_stream.web.metrics import blueprint as metrics
from heartbeat_stream.web.overview import blueprint as overview
from heartbeat_stream.web.page import blueprint as page
from heartbeat_stream.web.rooms import blueprint as rooms
from heartbeat_stream.web.router import blueprint as router
from heartbeat_stream.web.sign_in import blueprint as sign_in
from heartbeat_stream.web.tables import blueprint as tables

if TYPE_CHECKING:
    from heartbeat_stream.app import Worker
    from heartbeat_stream.streaming.faust_app import EngineApp

__all__ = ["StateWeb"]


class StateServer(LimitedServer):
    """Connections are bounded, or whoever reaches the port takes the files that the worker needs
    for Kafka, PostgreSQL and its tables: by far fewer than the 1024 that a process often has."""

    connections_max = 512
    connections_of_one_max = 128


class GuardedRunner(AppRunner):
    """Runs the views behind the limits."""

    def __init__(self, app: Application, origins: Collection[str]) -> None:
        super().__init__(app)
        self._origins = origins

    async def _make_server(self) -> Server:
        made = await super()._make_server()
        return StateServer(
            made.request_handler,
            request_factory=made.request_factory,
            origins=self._origins,
            head_s=HEAD_S,
            access_log=None,
            **LIMITS,
        )


class StateWeb(Web):
    """Faust's server with views of our own: of tables, which know what is not yet checkpointed, of
    who owns what, of health and of metrics, and the page for people.

    Whatever is served, Faust's own views too, is behind the door.
    """

    default_blueprints: ClassVar = [
        ("/router", router),
        ("/table", tables),
        ("/health", health),
        ("", metrics),
        ("", page),
        ("/ui", sign_in),
        ("/ui/api", overview),
        ("/ui/api", rooms),
    ]

    def __init__(self, app: Any, **kwargs: Any) -> None:
        super().__init__(app, **kwargs)
        worker = cast("Worker", app.worker)
        origins = frozenset(worker.settings.web_cors_origins or ())
        settings = worker.settings
        names = {"localhost", settings.web_host.lower(), URL(settings.web_url).host or ""}
        self.web_app.middlewares.append(Door(worker.access, settings.web_open, origins, names))
        self._runner = GuardedRunner(self.web_app, origins)

    def _create_site(self) -> BaseSite:
        """On the socket that the worker has taken, instead of a port that may be gone by now.

        Relied upon in faust-streaming 0.15.3: this is where the driver decides what it listens on.
        """
        return SockSite(self._runner, cast("EngineApp", self.app).web_socket)
