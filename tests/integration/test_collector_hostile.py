"""The collector against requests that are malformed, huge, hostile or slow."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import time
from collections import Counter

import aiohttp
import psutil  # type: ignore[import-untyped]
import pytest

from heartbeat_stream.local.sdk_reports import encoded, send_report
from tests.support.brokers import on_embedded
from tests.support.door import open_door, prepare_door
from tests.support.sdk import event
from tests.support.topic_reader import open_reader
from tests.support.wait import wait_until_async
from tests.support.world import World

pytestmark = on_embedded

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def bomb(size: int) -> bytes:
    """A form with gzip that unpacks to so many bytes."""
    text = base64.b64encode(gzip.compress(b"[" + b" " * size + b"]")).decode()
    return f"data_list={text.replace('+', '%2B')}&gzip=1".encode()


async def test_what_is_no_report_is_answered_as_any_and_kept(world: World) -> None:
    settings = await prepare_door(world, tracking_place="door")
    bodies = {
        b"data=%%%": "bad-report",
        b"data_list=" + encoded({"a": 1})[:-6].encode() + b"!": "bad-report",
        b"nothing=1": "bad-report",
        b"\x00\xff\xfe": "bad-report",
        b"{broken": "not-json",
        b"[1, 2": "not-json",
        b"[[" * 50_000: "too-deep",
        bomb(100_000_000): "bad-report",
        json.dumps([event(1), "no event", event(2)]).encode(): "not-object",
    }
    async with open_door(settings) as door, aiohttp.ClientSession() as session:
        for body in bodies:
            async with session.post(f"{door.url}/sa", data=body, headers=FORM) as response:
                assert (response.status, await response.read()) == (200, b"ok\n"), body[:40]
        async with session.get(f"{door.url}/sa.gif?data=%ff%00") as response:
            assert response.status == 200
            assert response.content_type == "image/gif"
            assert (await response.read())[:6] == b"GIF89a"
        assert door.service.figures.reports["acknowledged"] == len(bodies) + 1
    async with open_reader(world.bootstrap_servers, settings.dead_letter_topic) as reader:
        letters = await reader.until(len(bodies) + 1)
    reasons = Counter(dict(letter.headers)["reason"].decode() for letter in letters)
    assert reasons == Counter([*bodies.values(), "bad-report"])
    assert "no event" in [json.loads(x.value) for x in letters if x.value[:1] == b'"']
    async with open_reader(world.bootstrap_servers, settings.tracking_topic) as reader:
        assert len(await reader.until(2)) == 2, "the good ones of a list with a bad one"


async def test_a_hundred_thousand_events_in_one_list(world: World) -> None:
    """They are taken, within bounds of memory, while others are answered."""
    settings = await prepare_door(
        world, tracking_place="door", collect_ack_wait_ms=20_000, collect_claim_ms=60_000
    )
    count = 100_000
    events = [
        {"type": "track", "distinct_id": f"u{n % 999}", "_track_id": n, "time": 1_000 + n}
        for n in range(1, count + 1)
    ]
    body = ("data_list=" + encoded(events, zipped=True).replace("+", "%2B")).encode()
    del events
    process = psutil.Process()
    async with open_door(settings) as door, aiohttp.ClientSession() as session:
        before = process.memory_info().rss
        async with asyncio.TaskGroup() as group:
            posted = group.create_task(_post(session, door.url, body))
            waits = []
            while not posted.done():
                started = time.monotonic()
                async with session.get(f"{door.url}/health/live") as response:
                    assert response.status == 200
                waits.append(time.monotonic() - started)
                await asyncio.sleep(0.01)
        assert posted.result() == 200
        assert process.memory_info().rss - before < 400 * 1024 * 1024
        assert max(waits) < 3.0, "nobody else waits for it"
        await wait_until_async(lambda: not door.service.spool.size, 60)
        seen = Counter(verdict for _, _, verdict in door.service.figures.events.elements())
        assert seen == {"first": count}


async def _post(session: aiohttp.ClientSession, url: str, body: bytes) -> int:
    async with session.post(f"{url}/sa", data=body, headers=FORM) as response:
        return response.status


async def test_too_large_a_body_is_refused_before_it_is_read(world: World) -> None:
    settings = await prepare_door(world, collect_body_max_bytes=100_000)

    async def endless() -> object:
        for _ in range(10_000):
            yield b"x" * 10_000

    async with open_door(settings) as door, aiohttp.ClientSession() as session:
        assert await _post(session, door.url, b"data=" + b"x" * 200_000) == 413
        try:
            async with session.post(f"{door.url}/sa", data=endless(), headers=FORM) as response:
                assert response.status == 413
        except aiohttp.ClientError:
            pass  # it was cut off while it was still sending
        compressed = {**FORM, "Content-Encoding": "gzip"}
        zipped = gzip.compress(b"data=" + b"x" * 10_000_000)
        async with session.post(f"{door.url}/sa", data=zipped, headers=compressed) as response:
            assert response.status == 413
        assert await send_report(session, door.url, "form", [event(1)]) == 200
        assert door.service.budget.in_use == 0


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"POST /sa HTTP/1.1\r\nHost: a\r\nX-Slow: ",
        b"POST /sa HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\ndata=",
    ],
    ids=["nothing", "half a head", "half a body"],
)
async def test_a_slow_client_is_cut_off_and_holds_nobody(world: World, begun: bytes) -> None:
    settings = await prepare_door(world, collect_request_timeout_ms=500)
    async with open_door(settings) as door, aiohttp.ClientSession() as session:
        host, port = door.url.removeprefix("http://").split(":")
        slow = [await asyncio.open_connection(host, int(port)) for _ in range(50)]
        try:
            for _, writer in slow:
                writer.write(begun)
            assert await send_report(session, door.url, "form", [event(1)]) == 200
            async with asyncio.timeout(20):
                answers = [await reader.read() for reader, _ in slow]
            assert all(answer == b"" or b" 408 " in answer for answer in answers)
            assert door.service.budget.in_use == 0
        finally:
            for _, writer in slow:
                writer.close()


async def test_connections_are_bounded(world: World) -> None:
    settings = await prepare_door(world, collect_connections_max=20)
    async with open_door(settings) as door:
        host, port = door.url.removeprefix("http://").split(":")
        made = [await asyncio.open_connection(host, int(port)) for _ in range(30)]
        reader, _ = made[-1]
        async with asyncio.timeout(10):
            assert await reader.read() == b"", "one too many is closed at once"
        first_reader, first = made[0]
        first.write(b"GET /health/live HTTP/1.1\r\nHost: a\r\n\r\n")
        assert b"200" in await first_reader.readline()
        for _, writer in made:
            writer.close()


async def test_pages_of_all_origins_may_report(world: World) -> None:
    settings = await prepare_door(world)
    origin = {"Origin": "https://shop.example"}
    asks = {**origin, "Access-Control-Request-Method": "POST"}
    async with open_door(settings) as door, aiohttp.ClientSession() as session:
        async with session.options(f"{door.url}/sa", headers=asks) as response:
            assert response.status == 204
            assert response.headers["Access-Control-Allow-Methods"] == "GET, POST"
        async with session.post(f"{door.url}/sa", json=event(1), headers=origin) as response:
            assert response.headers["Access-Control-Allow-Origin"] == "https://shop.example"
            assert response.headers["Cross-Origin-Resource-Policy"] == "cross-origin"
            assert "aiohttp" not in response.headers["Server"].lower()
