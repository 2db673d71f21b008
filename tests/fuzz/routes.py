"""What may come of anything that somebody sends to a worker's web view."""

from __future__ import annotations

import asyncio
import contextlib
import re

__all__ = ["DICTIONARY", "DOCUMENTED", "check", "exchange", "framed", "seeds"]

#: Done, elsewhere, malformed, not without the token, not under this name, not there, not with this
#: method, without or with too long a body, an expectation that cannot be met, and not now.
#: Never 500.
DOCUMENTED = {200, 301, 302, 303, 304, 400, 401, 403, 404, 405, 411, 413, 414, 417, 431, 503}

PATHS = [
    *("/", "/metrics", "/health/live", "/health/ready", "/health/", "/table/", "/table/latest/"),
    *("/table/latest/7:101/", "/table/last_written_at/7:101/", "/table/latest/7:101"),
    *("/table/nothing/7:101/", "/router/", "/router/latest/7:101/", "/table/latest/%FF/"),
    *("/table/latest/7:%E5%A4%A7/", "/table/latest/..%2F..%2F/", "//", "/%00", "/table//x/"),
    *("/ui", "/ui/", "/ui/sign-in", "/ui/sign-out", "/ui/static/main.js", "/ui/static/..%2Fpage"),
    *("/ui/api/overview", "/ui/api/worker", "/ui/api/room?hotel=7&room=%E5%A4%A7", "/ui/api/room?"),
    *("/ui/api/rooms?hotel=7&after=%FF&limit=2", "/ui/api/rooms?hotel=7&after=1", "/ui/api/rooms"),
    *("*", "http://127.0.0.1/metrics", "/table/latest/7:101/?a=b#c", "/stats/", "/graph/"),
]

DICTIONARY = [
    *PATHS,
    *("GET ", "HEAD ", "POST ", "PUT ", "OPTIONS ", "CONNECT ", "TRACE ", " HTTP/1.0", " HTTP/1.1"),
    *("\r\n", "Host: ", "Content-Length: ", "Transfer-Encoding: chunked", "Expect: 100-continue"),
    *("Upgrade: websocket", "X-Heartbeat-Routed: 1", "Accept-Encoding: gzip", "If-None-Match: *"),
    *("Range: bytes=0-", "%", "%2F", "%00", "%FF", ";", "?", "#", "\x00", "\xff", "7:", "大"),
]

_GO_ON = b"HTTP/1.1 100 Continue\r\n\r\n"
_LENGTH = re.compile(rb"(?i)\r\nContent-Length: (\d+)")
_STATUS = re.compile(rb"HTTP/\d\.\d (\d{3}) ")


def framed(method: bytes, target: bytes, headers: bytes = b"", body: bytes = b"") -> bytes:
    """A request after whose answer the server hangs up."""
    length = b"Content-Length: %d\r\n" % len(body) if body else b""
    return b"%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s%s\r\n%s" % (
        method,
        target,
        length,
        headers,
        body,
    )


async def exchange(port: int, request: bytes, patience_s: float = 0.2) -> bytes:
    """Send bytes to a worker; what it answers, nothing where it waits for more."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = b""
    try:
        writer.write(request)
        with contextlib.suppress(TimeoutError, OSError):
            async with asyncio.timeout(patience_s):
                while not _is_complete(answer) and (part := await reader.read(65_536)):
                    answer += part
    finally:
        writer.transport.abort()
    return answer


def _is_complete(answer: bytes) -> bool:
    """Whether there is a whole answer, after which the server may wait for another request."""
    head, end, body = answer.removeprefix(_GO_ON).partition(b"\r\n\r\n")
    length = _LENGTH.search(head)
    return bool(end and length and len(body) >= int(length[1]))


def check(request: bytes, answer: bytes) -> None:
    """Require that every answer has a documented status."""
    if not answer:
        return
    first = _STATUS.match(answer.removeprefix(_GO_ON))
    assert first is not None, (request, answer[:200])
    assert int(first[1]) in DOCUMENTED, (request, answer[:200])


def seeds() -> list[bytes]:
    requests = [framed(b"GET", path.encode()) for path in PATHS]
    requests += [framed(method, b"/metrics") for method in (b"HEAD", b"POST", b"PUT", b"DELETE")]
    requests.append(framed(b"POST", b"/table/latest/7:101/", body=b'{"a": 1}'))
    requests.append(framed(b"POST", b"/ui/sign-in", body=b"token=x"))
    requests.append(framed(b"POST", b"/ui/sign-in", body=b"token=" + b"x" * 9_000))
    requests.append(framed(b"GET", b"/health/ready", b"Expect: 100-continue\r\n"))
    requests.append(framed(b"GET", b"/health/ready", b"Expect: \xe3nothing\r\n"))
    requests.append(framed(b"GET", b"/nowhere", b"Expect: \xe3nothing\r\n"))
    requests.append(framed(b"GET", b"/" + b"a" * 9_000))
    requests.append(b"CONNECT \r\n\r\n\r\n\r\n")
    return requests
