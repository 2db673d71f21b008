"""The base of this product's views: a Faust view that knows the worker behind it."""

from typing import TYPE_CHECKING, Any, cast

import msgspec
from faust import web

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

    def encoded(self, value: Any, status: int = 200) -> web.Response:
        """Any value that msgspec knows, as JSON."""
        body = msgspec.json.encode(value)
        return self.web.bytes(body, content_type="application/json", status=status)

    def failed(self, status: int, error: str) -> web.Response:
        """One line for people, as JSON."""
        return self.encoded({"error": error}, status)
