"""The base of this product's views: a Faust view that knows the worker behind it."""

from typing import TYPE_CHECKING, Any, cast

import msgspec
from aiohttp.web import Request
from faust import web

from heartbeat_stream.web.access import COOKIE

if TYPE_CHECKING:
    from heartbeat_stream.app import Worker
    from heartbeat_stream.streaming.faust_app import EngineApp

__all__ = ["WorkerView"]


class WorkerView(web.View):
    """A view of a worker."""

    @property
    def worker(self) -> "Worker":
        app = cast("EngineApp", self.app)
        worker: Worker = app.worker
        return worker

    def admitted(self, request: web.Request) -> bool:
        """Whether whoever asks may see everything, on a view that is open to others, too."""
        asked = cast("Request", request)
        cookie = asked.cookies.get(COOKIE)
        return self.worker.access.admits(asked.headers.get("Authorization"), cookie)

    def encoded(self, value: Any, status: int = 200) -> web.Response:
        """Any value that msgspec knows, as JSON."""
        body = msgspec.json.encode(value)
        return self.web.bytes(body, content_type="application/json", status=status)

    def failed(self, status: int, error: str) -> web.Response:
        """One line for people, as JSON."""
        return self.encoded({"error": error}, status)
