"""``/metrics`` for Prometheus."""

from faust import web
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from heartbeat_stream.web.view import WorkerView

__all__ = ["blueprint"]

blueprint = web.Blueprint("metrics")


@blueprint.route("/metrics", name="metrics")
class Metrics(WorkerView):
    """The worker's figures in Prometheus' text format."""

    async def get(self, request: web.Request) -> web.Response:
        body = generate_latest(self.worker.metrics)
        return self.bytes(body, content_type=CONTENT_TYPE_LATEST.partition(";")[0])
