"""Who is let in to a real worker's web view, and what each of its answers carries."""

from __future__ import annotations

import asyncio
import json
import re
import time
from typing import Any

import pytest

from heartbeat_stream.core.heartbeat import Heartbeat
from heartbeat_stream.local.process import free_port
from heartbeat_stream.web import limits
from heartbeat_stream.web.access import COOKIE
from heartbeat_stream.web.server import StateServer
from tests.fuzz.routes import exchange, framed
from tests.support.answers import ask
from tests.support.brokers import on_embedded
from tests.support.oracle import now_ms
from tests.support.own_worker import own_worker
from tests.support.wait import wait_until_async
from tests.support.worker import Worker
from tests.support.world import World

TOKEN = "the-token-of-this-test"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
STATE = ("/", "/table/", "/table/latest/7:101/", "/router/", "/router/latest/", "/nowhere")
PAGE = ("/ui/api/overview", "/ui/api/worker", "/ui/api/room?hotel=7&room=101", "/ui/api/rooms")
HEALTH = ("/health/live", "/health/ready")
ORIGIN = "https://pages.example.com"

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def ready_with_room(
    world: World, *, of_worker: dict[str, str] | None = None, **settings: Any
) -> Worker:
    """A worker that knows a room. ``of_worker``: settings that the topics and the table lack."""
    await world.prepare(web_token=TOKEN, **settings)
    worker = world.start_worker(**(of_worker or {}))

    async def is_ready() -> bool:
        ready = await ask(worker.port, "/health/ready", BEARER) if worker.port else None
        return ready is not None and ready.status == 200

    await worker.until(is_ready, 60, what="it is ready")
    await world.send([Heartbeat(7, "101", now_ms())])

    async def has_it() -> bool:
        return (await ask(worker.port, "/table/latest/7:101/", BEARER)).status == 200

    await worker.until(has_it, what="the room is known")
    return worker


@on_embedded
async def test_the_state_needs_the_token_and_health_and_metrics_do_not(world: World) -> None:
    nowhere = f"postgresql://nobody@127.0.0.1:{free_port()}/none"
    worker = await ready_with_room(world, of_worker={"database_url": nowhere})
    port = worker.port
    for path in (*STATE, *PAGE):
        refused = await ask(port, path)
        assert refused.status == 401, path
        assert refused.headers["WWW-Authenticate"].startswith("Bearer")
        assert "HEARTBEAT_WEB_TOKEN" in json.loads(refused.text)["error"]
        assert (await ask(port, path, BEARER)).status in (200, 400, 404), path
    for path in (*HEALTH, "/metrics"):
        assert (await ask(port, path)).status == 200
    await errors_name_nobody(worker)
    # Other spellings of paths lead nowhere else.
    for path in (
        "/health/../table/",
        "/health/live/../../table/",
        "//table/",
        "/TABLE/",
        "/ui/api",
    ):
        assert (await ask(port, path)).status == 401, path
    wrong = (
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        "Bearer ",
        f"Basic {TOKEN}",
        TOKEN,
        "Bearer 9999999999.",
        "Bearer 9999999999." + "0" * 64,
        "Bearer tökén",
    )
    for authorization in wrong:
        answer = await ask(port, "/table/", {"Authorization": authorization})
        assert answer.status == 401, authorization
    assert (await ask(port, "/table/", {"Cookie": f"{COOKIE}={TOKEN}"})).status == 401
    log = worker.log_text()
    assert "127.0.0.1 asked the web view with a wrong token" in log
    assert TOKEN not in log


async def errors_name_nobody(worker: Worker) -> None:
    """What keeps the database from taking rows is told in full to those who show the token."""

    async def told() -> bool:
        seen = json.loads((await ask(worker.port, "/health/ready", BEARER)).text)
        return "Connection refused" in (seen["database_error"] or "")

    await worker.until(told, what="the database is missed")
    seen = json.loads((await ask(worker.port, "/health/ready")).text)
    assert seen["database_error"] == "shown with the token, and in the log"
    assert seen["ready"] is True


@on_embedded
@pytest.mark.parametrize(
    ("opened", "open_paths"),
    [("none", ()), ("health", HEALTH), ("metrics", ("/metrics",))],
)
async def test_health_and_metrics_are_opened_each_by_itself(
    world: World, opened: str, open_paths: tuple[str, ...]
) -> None:
    worker = await ready_with_room(world, web_open=opened)
    for path in (*HEALTH, "/metrics"):
        assert (await ask(worker.port, path)).status == (200 if path in open_paths else 401), path
        assert (await ask(worker.port, path, BEARER)).status == 200


@on_embedded
async def test_signing_in_and_out(world: World) -> None:
    worker = await ready_with_room(world)
    port = worker.port
    turned_away = await ask(port, "/ui/")
    assert (turned_away.status, turned_away.headers["Location"]) == (303, "/ui/sign-in")
    form = await ask(port, "/ui/sign-in")
    assert form.status == 200
    assert 'type="password"' in form.text
    for path in re.findall(r'(?:href|src)="(static/[^"]+)"', form.text):
        assert (await ask(port, f"/ui/{path}")).status == 200, path

    wrong = await ask(
        port, "/ui/sign-in", method="POST", form={"token": "another-token-altogether"}
    )
    assert wrong.status == 401
    assert "not the token" in wrong.text
    assert "Set-Cookie" not in wrong.headers
    assert (await ask(port, "/ui/sign-in", method="POST", form={})).status == 401
    huge = {"token": "x" * (limits.BODY_MAX + 1)}
    assert (await ask(port, "/ui/sign-in", method="POST", form=huge)).status == 413
    kind = b"Content-Type: application/x-www-form-urlencoded\r\nTransfer-Encoding: chunked\r\n"
    chunk = b"token=" + b"x" * limits.BODY_MAX
    chunked = framed(b"POST", b"/ui/sign-in", kind) + b"%x\r\n%s\r\n0\r\n\r\n" % (len(chunk), chunk)
    assert b" 413 " in (await exchange(port, chunked, patience_s=10))[:20]

    entered = await ask(port, "/ui/sign-in", method="POST", form={"token": TOKEN})
    assert (entered.status, entered.headers["Location"]) == (303, "/ui/")
    cookie, *attributes = entered.headers["Set-Cookie"].split("; ")
    assert {"HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=43200"} <= set(attributes)
    assert "Secure" not in attributes
    assert TOKEN not in cookie
    for path in ("/ui/", "/table/latest/7:101/", "/ui/api/room?hotel=7&room=101"):
        assert (await ask(port, path, {"Cookie": cookie})).status == 200, path
    forged = cookie[:-1] + ("0" if cookie[-1] != "0" else "1")
    later = re.sub(r"=\d+", "=99999999999", cookie)
    for wrong_cookie in (forged, later):
        assert (await ask(port, "/table/", {"Cookie": wrong_cookie})).status == 401

    behind_tls = {"X-Forwarded-Proto": "https"}
    entered = await ask(port, "/ui/sign-in", behind_tls, method="POST", form={"token": TOKEN})
    assert "Secure" in entered.headers["Set-Cookie"]
    left = await ask(port, "/ui/sign-out", {"Cookie": cookie}, method="POST")
    assert left.status == 303
    assert "Max-Age=0" in left.headers["Set-Cookie"]


@on_embedded
async def test_every_answer_is_protected(world: World) -> None:
    worker = await ready_with_room(world)
    requests = [
        framed(b"GET", path.encode(), headers)
        for path in (
            *STATE,
            *PAGE,
            *HEALTH,
            "/metrics",
            "/ui/",
            "/ui/sign-in",
            "/ui/static/main.js",
        )
        for headers in (b"", f"Authorization: Bearer {TOKEN}\r\n".encode())
    ]
    requests.append(framed(b"POST", b"/table/"))
    requests.append(framed(b"GET", b"/" + b"a" * 9_000))
    requests.append(framed(b"GET", b"/", b"Expect: \xe3\r\n"))
    too_large = framed(b"GET", b"/health/live", b"Content-Length: 99999999\r\n")
    assert b" 413 " in (await exchange(worker.port, too_large, patience_s=10))[:20]
    requests.append(too_large)
    requests.append(b"GET / HTTP/9.9\r\n\r\n")
    requests.append(b"\x16\x03\x01\x02\x00\x01\x00")
    for request in requests:
        answer = await exchange(worker.port, request, patience_s=10)
        head = answer.partition(b"\r\n\r\n")[0].decode("latin-1")
        assert "\r\nContent-Security-Policy: default-src 'none'; script-src 'self'" in head, request
        assert "unsafe" not in head
        for header in (
            "X-Content-Type-Options: nosniff",
            "X-Frame-Options: DENY",
            "Referrer-Policy: no-referrer",
            "Server: heartbeat-stream",
        ):
            assert f"\r\n{header}\r\n" in f"{head}\r\n", (request, head)
        assert re.search(r"\r\nCache-Control: no-(store|cache)", head)
        assert "Access-Control" not in head
    assert "Traceback" not in worker.log_text()


@on_embedded
async def test_only_pages_of_the_origins_that_were_set_may_read(world: World) -> None:
    worker = await ready_with_room(world, web_cors_origins=ORIGIN)
    allowed = {**BEARER, "Origin": ORIGIN}
    answer = await ask(worker.port, "/table/", allowed)
    assert answer.headers["Access-Control-Allow-Origin"] == ORIGIN
    assert "Access-Control-Allow-Credentials" not in answer.headers
    assert answer.headers["Vary"] == "Origin"
    question = {"Origin": ORIGIN, "Access-Control-Request-Method": "GET"}
    permission = await ask(worker.port, "/table/", question, method="OPTIONS")
    assert permission.status == 204
    assert permission.headers["Access-Control-Allow-Headers"] == "Authorization"
    for other in ("https://evil.example.com", "null", f"{ORIGIN}.evil.example.com"):
        answer = await ask(worker.port, "/table/", {**BEARER, "Origin": other})
        assert answer.status == 200
        assert "Access-Control-Allow-Origin" not in answer.headers
        refused = await ask(worker.port, "/table/", {**question, "Origin": other}, method="OPTIONS")
        assert refused.status == 401


@on_embedded
async def test_a_foreign_name_that_leads_to_loopback_shows_nothing(world: World) -> None:
    """As a page does that has its own name lead there: it could read what a browser gets."""
    await world.prepare(web_url="http://worker.example.com:6066")
    worker = world.start_worker()

    async def answers() -> bool:
        return bool(worker.port) and (await ask(worker.port, "/health/live")).status == 200

    await worker.until(answers, what="it answers")
    for path in ("/ui/", "/ui/api/overview", "/table/", "/nowhere"):
        for host in ("evil.example.com", "127.0.0.1.evil.example.com:6066", "localhost.evil", "[x"):
            refused = await ask(worker.port, path, {"Host": host})
            assert refused.status in (400, 403), (path, host)
            assert "not called so" in refused.text or refused.status == 400
        for host in ("localhost", "LOCALHOST:1", "127.0.0.1:8080", "[::1]:1", "worker.example.com"):
            answer = await ask(worker.port, path, {"Host": host})
            assert answer.status == (404 if path == "/nowhere" else 200), (path, host)


@on_embedded
async def test_a_worker_that_others_could_reach_without_a_token_does_not_start(
    world: World,
) -> None:
    await world.prepare()
    worker = world.start_worker(web_host="0.0.0.0")
    assert await worker.ended() == 2
    lines = worker.log_text().splitlines()
    assert len(lines) == 1
    assert "HEARTBEAT_WEB_HOST=0.0.0.0" in lines[0]
    assert "set HEARTBEAT_WEB_TOKEN or HEARTBEAT_WEB_TOKEN_FILE" in lines[0]


@on_embedded
async def test_what_takes_too_long_is_given_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits.LimitedServer, "answer_s", 0.3)
    monkeypatch.setattr("heartbeat_stream.web.server.HEAD_S", 0.5)
    await world.prepare()
    async with own_worker(world, web_token=TOKEN) as worker:
        port = worker.settings.web_port
        # A request that does not come, or whose end does not come.
        for start in (b"", b"GET /health/live HTTP/1.1\r\nHost: x\r\nX-Slow"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(start)
            started = time.monotonic()
            async with asyncio.timeout(20):
                assert await reader.read() == b""
            assert time.monotonic() - started >= 0.4
            writer.close()
        # A body of which only the beginning comes.
        fields = b"Content-Length: 100\r\nContent-Type: application/x-www-form-urlencoded\r\n"
        request = framed(b"POST", b"/ui/sign-in", fields) + b"token="
        answer = await exchange(port, request, patience_s=20)
        assert answer.startswith(b"HTTP/1.1 503")
        # None of that has left anything behind.
        assert worker.app.web is not None
        await wait_until_async(lambda: not open_connections(worker), 20, what="all is closed")


@on_embedded
async def test_connections_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of one address, so that others still come through, and those of all."""
    monkeypatch.setattr(StateServer, "connections_of_one_max", 5)
    monkeypatch.setattr(StateServer, "connections_max", 8)
    await world.prepare()
    async with own_worker(world) as worker:
        port = worker.settings.web_port
        made = [await connect(port, "127.0.0.1") for _ in range(6)]
        assert await is_closed(made[-1]), "one too many of an address"
        made += [await connect(port, "127.0.0.2") for _ in range(4)]
        assert await is_closed(made[-1]), "one too many of all"
        reader, writer = made[6]
        writer.write(framed(b"GET", b"/health/live"))
        assert b" 200 " in await reader.readline()
        for _, one in made:
            one.close()
        await wait_until_async(lambda: not open_connections(worker), 20, what="all are closed")


async def connect(port: int, client: str) -> Connection:
    """A connection from an address of this machine's."""
    return await asyncio.open_connection("127.0.0.1", port, local_addr=(client, 0))


async def is_closed(connection: Connection) -> bool:
    async with asyncio.timeout(5):
        return await connection[0].read() == b""


def open_connections(worker: object) -> int:
    server = worker.app.web._runner.server  # type: ignore[attr-defined]
    return len(server.connections)
