"""Faust's web server with this product's views beside and in place of its own."""

from typing import ClassVar

from faust.web.drivers.aiohttp import Web

from heartbeat_stream.web.health import blueprint as health
from heartbeat_stream.web.metrics import blueprint as metrics
from heartbeat_stream.web.tables import blueprint as tables

__all__ = ["StateWeb"]


class StateWeb(Web):
    """Faust's views stay, but for those of tables, which must know what is not yet checkpointed."""

    default_blueprints: ClassVar = [
        ("/router", "faust.web.apps.router:blueprint"),
        ("/table", tables),
        ("/health", health),
        ("", metrics),
    ]
