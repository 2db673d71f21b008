"""The other workers: who they are, and asking one of them."""

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aiohttp import ClientError, ClientTimeout
from yarl import URL

if TYPE_CHECKING:
    from heartbeat_stream.app import Worker

__all__ = ["ROUTED", "Answer", "Unreachable", "ask", "others"]

#: Marks a request that another worker has passed on: it is not passed on again.
ROUTED: Final = "X-Heartbeat-Routed"

_TIMEOUT: Final = ClientTimeout(total=5.0)
_BODY_MAX: Final = 4 * 1024 * 1024


class Answer(NamedTuple):
    """What a worker has answered."""

    status: int
    content_type: str
    body: bytes


class Unreachable(Exception):
    """A worker that cannot be asked. The message is one line for people, without a secret."""


def others(worker: "Worker") -> list[str]:
    """The addresses of the workers that own partitions, but for this one, as the group knows."""
    app: Any = worker.app
    return sorted(url for url in app.router.tables_metadata() if URL(url) != _own(worker))


def _own(worker: "Worker") -> URL:
    return URL(worker.settings.web_url)


async def ask(worker: "Worker", owner: URL | str, raw_path: str) -> Answer:
    """Get a page of another worker, with a pass that lets this one in. Raises Unreachable."""
    url = URL(f"{URL(owner).origin()}{raw_path}", encoded=True)
    headers = {ROUTED: "1", **worker.access.authorization()}
    try:
        async with worker.app.http_client.get(
            url, headers=headers, timeout=_TIMEOUT, allow_redirects=False
        ) as response:
            body = await response.content.read(_BODY_MAX)
            while not response.content.at_eof() and len(body) < _BODY_MAX:
                body += await response.content.read(_BODY_MAX - len(body))
            answer = Answer(response.status, response.content_type, body)
    except (OSError, ClientError) as exc:
        raise Unreachable(f"{owner} does not answer: {exc or type(exc).__name__}") from exc
    if answer.status == 401:
        raise Unreachable(
            f"{owner} does not let this worker in: its HEARTBEAT_WEB_TOKEN, or its clock, is "
            "another one"
        )
    return answer
