"""The door of the web view: who is let in to which page."""

import json
import logging
from collections.abc import Collection, Mapping
from typing import Final

from aiohttp.typedefs import Handler
from aiohttp.web import HTTPSeeOther, Request, Response, StreamResponse

from heartbeat_stream.complaints import Complaints
from heartbeat_stream.web.access import COOKIE, Access
from heartbeat_stream.web.headers import preflight

__all__ = ["Door"]

logger = logging.getLogger(__name__)

_PAGE: Final = frozenset({"/ui", "/ui/"})
#: What shows nothing of the state: where one signs in, and what that page is made of.
_ALWAYS_OPEN: Final = frozenset({"/ui/sign-in", "/ui/static/{name}"})
#: What each word of HEARTBEAT_WEB_OPEN opens.
_OPENED_BY: Final[Mapping[str, Collection[str]]] = {
    "health": ("/health/live", "/health/ready"),
    "metrics": ("/metrics",),
}


class Door:
    """aiohttp's middleware: lets a request pass, or answers it instead.

    It goes by the route that was found, not by the path, of which there are many spellings.
    """

    __middleware_version__ = 1

    def __init__(self, access: Access, opened: Collection[str], origins: Collection[str]) -> None:
        self._access = access
        self._open = _ALWAYS_OPEN.union(*(_OPENED_BY[word] for word in opened))
        self._origins = origins
        self._complaints = Complaints(logger)

    async def __call__(self, request: Request, handler: Handler) -> StreamResponse:
        asked = preflight(request, self._origins)
        if asked is not None:
            return asked
        resource = request.match_info.route.resource
        route = resource.canonical if resource is not None else None
        authorization = request.headers.get("Authorization")
        if route in self._open or self._access.admits(authorization, request.cookies.get(COOKIE)):
            return await handler(request)
        if authorization is not None:
            self._complaints.warning("%s asked the web view with a wrong token", request.remote)
        if route in _PAGE:
            raise HTTPSeeOther("/ui/sign-in")
        return _refusal()


def _refusal() -> Response:
    error = "this needs the token of HEARTBEAT_WEB_TOKEN, as Authorization: Bearer TOKEN"
    return Response(
        status=401,
        text=json.dumps({"error": error}),
        content_type="application/json",
        headers={"WWW-Authenticate": 'Bearer realm="heartbeat-stream"'},
    )
