"""Faust's web server with this product's views beside and in place of its own."""

from typing import TYPE_CHECKING, ClassVar, cast

from aiohttp.web import BaseSite, SockSite
from faust.web.drivers.aiohttp import Web

from heartbeat_stream.web.health import blueprint as health
from heartbeat_stream.web.metrics import blueprint as metrics
from heartbeat_stream.web.tables import blueprint as tables

if TYPE_CHECKING:
    from heartbeat_stream.streaming.faust_app import EngineApp

__all__ = ["StateWeb"]


class StateWeb(Web):
    """Faust's views stay, but for those of tables, which must know what is not yet checkpointed."""

    default_blueprints: ClassVar = [
        ("/router", "faust.web.apps.router:blueprint"),
        ("/table", tables),
        ("/health", health),
        ("", metrics),
    ]

    def _create_site(self) -> BaseSite:
        """On the socket that the worker has taken, instead of a port that may be gone by now.

        Relied upon in faust-streaming 0.15.3: this is where the driver decides what it listens on.
        """
        return SockSite(self._runner, cast("EngineApp", self.app).web_socket)
