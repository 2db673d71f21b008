"""``/health/live`` and ``/health/ready``."""

from typing import Any

from faust import web

from heartbeat_stream.web.view import WorkerView

__all__ = ["blueprint"]

blueprint = web.Blueprint("health")

_HIDDEN = "shown with the token, and in the log"


def _without_names(name: str, value: Any) -> Any:
    """What may be told to everybody. Errors name servers and users."""
    return _HIDDEN if isinstance(value, str) and name != "waiting_for" else value


@blueprint.route("/live", name="live")
class Live(WorkerView):
    """200 while the process can make progress, which an outage of a server does not prevent."""

    async def get(self, request: web.Request) -> web.Response:
        body = self.worker.liveness()
        return self.json(body, status=200 if body["live"] else 503)


@blueprint.route("/ready", name="ready")
class Ready(WorkerView):
    """200 once an assignment has been received and its state is recovered."""

    async def get(self, request: web.Request) -> web.Response:
        body: dict[str, Any] = self.worker.readiness()
        if not self.admitted(request):
            body = {name: _without_names(name, value) for name, value in body.items()}
        return self.json(body, status=200 if body["ready"] else 503)
