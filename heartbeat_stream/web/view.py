"""The base of this product's views: a Faust view that knows the worker behind it."""

from typing import TYPE_CHECKING, cast

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
