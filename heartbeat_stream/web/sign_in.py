"""``/ui/sign-in`` and ``/ui/sign-out``: a token becomes a cookie that no script can read."""

from typing import Any, cast

from aiohttp.web import HTTPSeeOther, Request, Response
from faust import web

from heartbeat_stream.web.access import COOKIE, SIGNED_IN_S, Access
from heartbeat_stream.web.door import asked_for
from heartbeat_stream.web.limits import BODY_MAX
from heartbeat_stream.web.page import file_of_page
from heartbeat_stream.web.view import WorkerView

__all__ = ["blueprint"]

blueprint = web.Blueprint("ui-sign-in")

_MESSAGE = "<!-- message -->"
_WRONG = '<p class="wrong" id="wrong" role="alert">That is not the token.</p>'


@blueprint.route("/sign-in", name="sign-in")
class SignIn(WorkerView):
    """The form, and where it is sent to."""

    async def get(self, request: web.Request) -> Any:
        if not self.worker.access.guarded:
            raise HTTPSeeOther("/ui/")
        return _form(200, "")

    async def post(self, request: web.Request) -> Any:
        asked = cast("Request", request)
        access = self.worker.access
        token = (await asked.clone(client_max_size=BODY_MAX).post()).get("token")
        if not isinstance(token, str) or not access.is_token(token.strip()):
            access.complain(asked.remote)
            return _form(401, _WRONG)
        answer = Response(status=303, headers={"Location": f"/ui/{asked_for(asked)}"})
        _set_cookie(answer, access, secure=self._is_encrypted(asked))
        return answer

    def _is_encrypted(self, request: Request) -> bool:
        """Whether the browser speaks TLS, to whoever ends it for us."""
        return request.headers.get(
            "X-Forwarded-Proto"
        ) == "https" or self.worker.settings.web_url.startswith("https:")


@blueprint.route("/sign-out", name="sign-out")
class SignOut(WorkerView):
    """Forgets the cookie."""

    async def post(self, request: web.Request) -> Any:
        answer = Response(status=303, headers={"Location": "/ui/sign-in"})
        answer.del_cookie(COOKIE, path="/")
        return answer


def _form(status: int, message: str) -> Response:
    page = file_of_page("sign-in.html").decode().replace(_MESSAGE, message)
    return Response(status=status, text=page, content_type="text/html", charset="utf-8")


def _set_cookie(answer: Response, access: Access, *, secure: bool) -> None:
    answer.set_cookie(
        COOKIE,
        access.new_pass(SIGNED_IN_S) or "",
        max_age=SIGNED_IN_S,
        path="/",
        secure=secure,
        httponly=True,
        samesite="Strict",
    )
