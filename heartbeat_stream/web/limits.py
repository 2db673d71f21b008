"""What one client may take of the web server: bytes, and time."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any, Final

from aiohttp.web import (
    BaseRequest,
    HTTPBadRequest,
    HTTPRequestEntityTooLarge,
    HTTPServiceUnavailable,
    RequestHandler,
    Server,
    StreamResponse,
)
from yarl import URL

from heartbeat_stream.web.headers import allow_origin, protect

__all__ = ["BODY_MAX", "HEAD_S", "LIMITS", "LimitedConnection", "LimitedServer"]

#: The largest body: that of the form with the token. Request line and header fields have 8 KB each.
BODY_MAX: Final = 4_096
#: A connection on which no request has come after so long is closed.
HEAD_S: Final = 10.0
#: How long an answer may take to be made, and how long to be taken by whoever asked.
_ANSWER_S: Final = 15.0
_SEND_S: Final = 30.0

#: aiohttp's own: an idle connection, and a body that nobody reads.
LIMITS: Final[dict[str, Any]] = {"keepalive_timeout": 75.0, "lingering_time": 5.0}

Handle = Callable[[BaseRequest], Awaitable[StreamResponse]]
RequestFactory = Callable[..., BaseRequest]


class LimitedServer(Server):
    """Turns away what aiohttp itself would stumble over or wait for, and protects each answer."""

    body_max: int = BODY_MAX
    answer_s: float = _ANSWER_S
    connections_max: int | None = None
    connections_of_one_max: int | None = None
    """From one address."""

    def __init__(
        self, handle: Handle, *, origins: Collection[str], head_s: float, **kwargs: Any
    ) -> None:
        """``origins``: those whose pages may read what is answered."""
        super().__init__(_guarded(handle, self.body_max, self.answer_s), **kwargs)
        self.request_factory = _aimed(self.request_factory)
        self.origins = origins
        self.head_s = head_s
        self._arguments = {name: kwargs[name] for name in kwargs if name != "request_factory"}

    def __call__(self) -> RequestHandler:
        loop = asyncio.get_running_loop()
        return LimitedConnection(self, loop=loop, **self._arguments)

    def has_room_for(self, connection: "LimitedConnection") -> bool:
        """Whether one that has just been made, and counts already, may stay."""
        there = self.connections
        if self.connections_max is not None and len(there) > self.connections_max:
            return False
        if self.connections_of_one_max is None:
            return True
        of_one = sum(
            isinstance(one, LimitedConnection) and one.client == connection.client for one in there
        )
        return of_one <= self.connections_of_one_max

    def dress(self, request: BaseRequest, headers: MutableMapping[str, str]) -> None:
        """Give an answer the headers that every answer has."""
        protect(headers)
        allow_origin(request, headers, self.origins)


def _aimed(make: RequestFactory) -> RequestFactory:
    def aimed(message: Any, *rest: Any) -> BaseRequest:
        # Its parser in C takes `CONNECT` without a target, which is no HTTP, for a request.
        if message.url is None:
            message = message._replace(path="/", url=URL("/"))
        return make(message, *rest)

    return aimed


def _guarded(handle: Handle, body_max: int, answer_s: float) -> Handle:
    async def guard(request: BaseRequest) -> StreamResponse:
        # An expectation that it does not know aiohttp quotes in its answer, and fails to
        # encode what was not UTF-8.
        if not request.headers.get("Expect", "").isascii():
            raise HTTPBadRequest(text="Expect: 100-continue is all that can be met\n")
        if (request.content_length or 0) > body_max:
            raise HTTPRequestEntityTooLarge(body_max, request.content_length or 0)
        try:
            async with asyncio.timeout(answer_s):
                return await handle(request)
        except TimeoutError:
            raise HTTPServiceUnavailable(text="this took too long: ask again\n") from None

    return guard


class LimitedConnection(RequestHandler):
    """aiohttp's connection with bounds of time for the request that it waits for and the answer
    that it sends. ``finish_response`` is where every answer passes, those to what is no HTTP too.
    """

    __slots__ = ("_server", "_until_request", "client")

    def __init__(self, server: LimitedServer, **kwargs: Any) -> None:
        super().__init__(server, **kwargs)
        self._server = server
        self._until_request: asyncio.TimerHandle | None = None
        self.client: str | None = None
        """The address that it comes from."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.client = (transport.get_extra_info("peername") or [None])[0]
        super().connection_made(transport)
        loop = asyncio.get_running_loop()
        self._until_request = loop.call_later(self._server.head_s, self.force_close)
        if not self._server.has_room_for(self):
            self.force_close()

    def connection_lost(self, exc: BaseException | None) -> None:
        self.request_has_come()
        super().connection_lost(exc)

    def request_has_come(self) -> None:
        """From now on the request's own bounds hold."""
        if self._until_request is not None:
            self._until_request.cancel()
            self._until_request = None

    async def finish_response(
        self, request: BaseRequest, resp: StreamResponse, start_time: float | None
    ) -> tuple[StreamResponse, bool]:
        self.request_has_come()
        if isinstance(resp, StreamResponse) and not resp.prepared:
            self._server.dress(request, resp.headers)
        try:
            async with asyncio.timeout(_SEND_S):
                return await super().finish_response(request, resp, start_time)
        except TimeoutError:
            self.force_close()
            return resp, True
