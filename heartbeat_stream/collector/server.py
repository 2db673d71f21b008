"""What the collector answers over HTTP: to SDKs, to probes and to Prometheus."""

import asyncio
import time
from collections.abc import MutableMapping
from typing import Final

from aiohttp import web
from aiohttp.web import BaseRequest, Server
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from heartbeat_stream.collector.metrics import collector_metrics
from heartbeat_stream.collector.report import Report, read_report
from heartbeat_stream.collector.service import Refused, Service
from heartbeat_stream.core.reasons import Rejected
from heartbeat_stream.web.limits import LIMITS, LimitedConnection, LimitedServer

__all__ = ["CollectorRunner", "make_runner"]

#: A picture of one transparent pixel, for SDKs that report by an <img>.
PIXEL: Final = (
    b"GIF89a\x01\x00\x01\x00\x80\x00\x00\xff\xff\xff\x00\x00\x00!\xf9\x04\x01\x00\x00\x00\x00,"
    b"\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;"
)
_REPORT_PATHS: Final = ("/sa", "/sa.gif")
_HEADER_BYTES_MAX: Final = 8_190
#: A report may come in the URL: browsers and SDKs keep it below this.
_URL_BYTES_MAX: Final = 131_072
_CHUNK: Final = 65_536
#: On top of reading a request and waiting for Kafka twice.
_ANSWER_MARGIN_S: Final = 30.0


class _Routes:
    """The handlers, around one service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._metrics = collector_metrics(service)

    def add_to(self, app: web.Application) -> None:
        for path in _REPORT_PATHS:
            app.router.add_get(path, self.report, allow_head=False)
            app.router.add_post(path, self.report)
            app.router.add_options(path, self.preflight)
        app.router.add_get("/health/live", self.live)
        app.router.add_get("/health/ready", self.ready)
        app.router.add_get("/metrics", self.metrics)

    async def report(self, request: web.Request) -> web.Response:
        """Take a report. The answer says nothing about what is in it."""
        started = time.perf_counter()
        if isinstance(request.protocol, LimitedConnection):
            request.protocol.request_has_come()
        cost = _body_bytes(request, self._service.settings.collect_body_max_bytes)
        try:
            if not self._service.budget.take(cost):
                limit_s = self._service.settings.collect_request_timeout_ms / 1000
                async with asyncio.timeout(limit_s):
                    await self._service.budget.wait(cost)
        except TimeoutError:
            self._service.figures.reports["refused"] += 1
            return _refused()
        try:
            await self._service.take(await self._read(request))
        except Refused:
            return _refused()
        finally:
            self._service.budget.give_back(cost)
            self._service.figures.request_seconds.observe(time.perf_counter() - started)
        if request.path.endswith(".gif"):
            return web.Response(body=PIXEL, content_type="image/gif")
        return web.Response(text="ok\n")

    async def _read(self, request: web.Request) -> Report:
        settings = self._service.settings
        body = bytearray()
        try:
            async with asyncio.timeout(settings.collect_request_timeout_ms / 1000):
                async for chunk in request.content.iter_chunked(_CHUNK):
                    body += chunk
                    if len(body) > settings.collect_body_max_bytes:
                        raise web.HTTPRequestEntityTooLarge(
                            settings.collect_body_max_bytes, len(body)
                        )
        except TimeoutError:
            raise web.HTTPRequestTimeout(text="the request did not come in time\n") from None
        except (web.RequestPayloadError, ValueError):
            # Of a content encoding that is none, nothing can be read.
            body = bytearray(b"?")
        at = self._service.now_ms()
        try:
            return read_report(request.query, bytes(body), at)
        except Rejected:
            # The intake says what is wrong with it, as with all else that cannot be used.
            query = request.query
            return Report(at, query.get("project"), query.get("remark"), (bytes(body),))

    async def preflight(self, request: web.Request) -> web.Response:
        """The answer to a browser that asks whether a page may report JSON."""
        headers = {
            "Access-Control-Allow-Methods": "GET, POST",
            "Access-Control-Allow-Headers": request.headers.get(
                "Access-Control-Request-Headers", "Content-Type"
            ),
            "Access-Control-Max-Age": "86400",
        }
        return web.Response(status=204, headers=headers)

    async def live(self, _: web.Request) -> web.Response:
        body = self._service.liveness()
        return web.json_response(body, status=200 if body["live"] else 503)

    async def ready(self, _: web.Request) -> web.Response:
        body = self._service.readiness()
        return web.json_response(body, status=200 if body["ready"] else 503)

    async def metrics(self, _: web.Request) -> web.Response:
        content_type = CONTENT_TYPE_LATEST.partition(";")[0]
        return web.Response(body=generate_latest(self._metrics), content_type=content_type)


def _refused() -> web.Response:
    return web.Response(
        status=503,
        text="no place for it at the moment: send it again\n",
        headers={"Retry-After": "5"},
    )


def _body_bytes(request: web.Request, most: int) -> int:
    """What a request's body may take while it is read."""
    if request.method == "GET":
        return 2 * len(request.path_qs)
    length = request.content_length
    compressed = "Content-Encoding" in request.headers
    return most if length is None or compressed else min(most, length)


class _CollectorServer(LimitedServer):
    """Bounds of the collector's own, and answers that pages of all origins may ask for."""

    def dress(self, request: BaseRequest, headers: MutableMapping[str, str]) -> None:
        headers["Cache-Control"] = "no-store"
        headers["Server"] = "heartbeat-stream"
        headers["X-Content-Type-Options"] = "nosniff"
        headers["Cross-Origin-Resource-Policy"] = "cross-origin"
        origin = request.headers.get("Origin")
        if origin is not None:
            # SDKs ask with credentials, where "*" does not do. Nothing here depends on any.
            headers["Access-Control-Allow-Origin"] = origin
            headers["Access-Control-Allow-Credentials"] = "true"
            headers["Vary"] = "Origin"


class CollectorRunner(web.AppRunner):
    """Runs the routes behind the limits."""

    def __init__(self, app: web.Application, service: Service) -> None:
        super().__init__(app)
        self._service = service

    async def _make_server(self) -> Server:
        made = await super()._make_server()
        settings = self._service.settings
        waits_ms = 2 * settings.collect_request_timeout_ms + 2 * settings.collect_ack_wait_ms
        bounds = {
            "body_max": settings.collect_body_max_bytes,
            "answer_s": waits_ms / 1000 + _ANSWER_MARGIN_S,
            "connections_max": settings.collect_connections_max,
        }
        kind = type("_BoundedServer", (_CollectorServer,), bounds)
        server: Server = kind(
            made.request_handler,
            request_factory=made.request_factory,
            origins=(),
            head_s=settings.collect_request_timeout_ms / 1000,
            access_log=None,
            max_line_size=_URL_BYTES_MAX,
            max_field_size=_HEADER_BYTES_MAX,
            **LIMITS,
        )
        return server


def make_runner(service: Service) -> CollectorRunner:
    """The server of a service, not yet listening."""
    app = web.Application(client_max_size=service.settings.collect_body_max_bytes)
    _Routes(service).add_to(app)
    return CollectorRunner(app, service)
