"""Faust's web server with this product's views beside and in place of its own."""

from typing import TYPE_CHECKING, Any, ClassVar, cast

from aiohttp.web import (
    AppRunner,
    BaseRequest,
    BaseSite,
    HTTPBadRequest,
    Server,
    SockSite,
    StreamResponse,
)
from faust.web.drivers.aiohttp import Web

from heartbeat_stream.web.health import blueprint as health
from heartbeat_stream.web.metrics import blueprint as metrics
from heartbeat_stream.web.router import blueprint as router
from heartbeat_stream.web.tables import blueprint as tables

if TYPE_CHECKING:
    from heartbeat_stream.streaming.faust_app import EngineApp

__all__ = ["StateWeb"]


class GuardedRunner(AppRunner):
    """Turns away what aiohttp itself would stumble over."""

    async def _make_server(self) -> Server:
        server = await super()._make_server()
        handle = server.request_handler

        async def guard(request: BaseRequest) -> StreamResponse:
            # An expectation that it does not know aiohttp quotes in its answer, and fails to
            # encode what was not UTF-8.
            if not request.headers.get("Expect", "").isascii():
                raise HTTPBadRequest(text="Expect: 100-continue is all that can be met\n")
            response: StreamResponse = await handle(request)
            return response

        server.request_handler = guard
        return server


class StateWeb(Web):
    """Faust's server with views of our own: of tables, which know what is not yet checkpointed, of
    who owns what, of health and of metrics."""

    default_blueprints: ClassVar = [
        ("/router", router),
        ("/table", tables),
        ("/health", health),
        ("", metrics),
    ]

    def __init__(self, app: Any, **kwargs: Any) -> None:
        super().__init__(app, **kwargs)
        self._runner = GuardedRunner(self.web_app, access_log=None)

    def _create_site(self) -> BaseSite:
        """On the socket that the worker has taken, instead of a port that may be gone by now.

        Relied upon in faust-streaming 0.15.3: this is where the driver decides what it listens on.
        """
        return SockSite(self._runner, cast("EngineApp", self.app).web_socket)
