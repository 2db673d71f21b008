"""``/ui/``: the page for people, made of the files beside this one. Nothing else is loaded."""

from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any, Final, cast

from aiohttp.web import HTTPSeeOther, Request, Response
from faust import web

from heartbeat_stream.web.view import WorkerView

__all__ = ["blueprint", "file_of_page"]

blueprint = web.Blueprint("ui-page")

#: What is served below /ui/static/, and as what.
_TYPES: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


@cache
def file_of_page(name: str) -> bytes:
    """A file of the page. Raises FileNotFoundError."""
    return (files(__name__) / name).read_bytes()


@cache
def _served() -> frozenset[str]:
    return frozenset(
        one.name for one in files(__name__).iterdir() if one.name.endswith(tuple(_TYPES))
    )


@blueprint.route("/ui", name="bare")
class Bare(WorkerView):
    """The address without its slash, below which the page's own links would not be found."""

    async def get(self, request: web.Request) -> Any:
        raise HTTPSeeOther("/ui/")


@blueprint.route("/ui/", name="page")
class Page(WorkerView):
    """The page itself."""

    async def get(self, request: web.Request) -> web.Response:
        return self.html(file_of_page("index.html").decode())


@blueprint.route("/ui/static/{name}", name="static")
class Static(WorkerView):
    """Styles, scripts and pictures of the page."""

    async def get(self, request: web.Request, name: str) -> Any:
        if name not in _served():
            return self.failed(404, "there is no such file")
        body = file_of_page(name)
        # Asked about each time, and sent only where it is not what the browser has already.
        headers = {"Cache-Control": "no-cache", "ETag": f'"{sha256(body).hexdigest()[:32]}"'}
        if cast("Request", request).headers.get("If-None-Match") == headers["ETag"]:
            return Response(status=304, headers=headers)
        kind = _TYPES["." + name.rpartition(".")[2]]
        return Response(body=body, content_type=kind, charset="utf-8", headers=headers)
