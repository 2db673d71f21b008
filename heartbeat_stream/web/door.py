"""The door of the web view: who is let in to which page."""

import ipaddress
import json
from collections.abc import Collection, Mapping
from typing import Final

from aiohttp.typedefs import Handler
from aiohttp.web import HTTPSeeOther, Request, Response, StreamResponse
from yarl import URL

from heartbeat_stream.web.access import COOKIE, Access
from heartbeat_stream.web.headers import preflight

__all__ = ["Door", "asked_for"]

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

    def __init__(
        self,
        access: Access,
        opened: Collection[str],
        origins: Collection[str],
        names: Collection[str],
    ) -> None:
        """``names``: what this worker may be called by where it asks for no token."""
        self._access = access
        self._open = _ALWAYS_OPEN.union(*(_OPENED_BY[word] for word in opened))
        self._origins = origins
        self._names = names

    async def __call__(self, request: Request, handler: Handler) -> StreamResponse:
        asked = preflight(request, self._origins)
        if asked is not None:
            return asked
        resource = request.match_info.route.resource
        route = resource.canonical if resource is not None else None
        authorization = request.headers.get("Authorization")
        if route in self._open:
            return await handler(request)
        if not self._access.guarded and not self._is_ours(request.headers.get("Host")):
            return _refusal(403, "this worker is not called so: set HEARTBEAT_WEB_URL, or a token")
        if self._access.admits(authorization, request.cookies.get(COOKIE)):
            return await handler(request)
        if authorization is not None:
            self._access.complain(request.remote)
        if route in _PAGE:
            raise HTTPSeeOther(f"/ui/sign-in{asked_for(request)}")
        refusal = _refusal(
            401, "this needs the token of HEARTBEAT_WEB_TOKEN, as Authorization: Bearer TOKEN"
        )
        refusal.headers["WWW-Authenticate"] = 'Bearer realm="heartbeat-stream"'
        return refusal

    def _is_ours(self, host: str | None) -> bool:
        """Whether a request was meant for this machine.

        A page of somebody else can make a browser ask a worker on loopback by having a name of its
        own lead there. Its script could then read the answer; but the name comes along.
        """
        if host is None:
            return True  # no browser
        try:
            name = URL(f"http://{host}").host or ""
        except ValueError:
            return False
        return name.lower() in self._names or _is_address(name)


def asked_for(request: Request) -> str:
    """The query of a request to the page, to be asked again once somebody has signed in."""
    query = request.rel_url.raw_query_string
    return f"?{query}" if query else ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _refusal(status: int, error: str) -> Response:
    text = json.dumps({"error": error})
    return Response(status=status, text=text, content_type="application/json")
