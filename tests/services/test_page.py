"""The page /ui/ in headless Chromium, served by a real worker: what people see and do there."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page, expect

from heartbeat_stream.core.heartbeat import Heartbeat
from heartbeat_stream.local.fleet import Fleet
from heartbeat_stream.local.process import free_port
from tests.support.brokers import on_embedded
from tests.support.browser import PHONE, Seen, browser, context, is_there
from tests.support.oracle import Oracle, now_ms
from tests.support.worker import Worker
from tests.support.world import PARTITIONS, World, load

pytestmark = [
    pytest.mark.services,
    pytest.mark.skipif(
        not is_there() and os.environ.get("CI") != "true",
        reason="Chromium is not installed: `make test-services` installs it",
    ),
]

NOT_FOUND = "the server responded with a status of 404"
TOKEN = "the-token-of-this-test"
ODD = ("大会议室", "房间/1", "%?#", "a&b=c", "<b>x</b>", "\N{HOTEL} ", "..")
#: Longer than anything should take, also on a machine that is busy with other tests.
PATIENCE_MS = 30_000

expect.set_options(timeout=PATIENCE_MS)


@asynccontextmanager
async def opened(
    running: Browser, worker: Worker, path: str = "/ui/", *, expected: str = "", **options: Any
) -> AsyncIterator[Page]:
    """A page of the worker. In the end it must have asked nobody else and complained of nothing.

    Of answers that are no 200 Chromium complains by itself: ``expected`` is one of that kind.
    """
    async with context(running, **options) as profile:
        page = await profile.new_page()
        page.set_default_timeout(PATIENCE_MS)
        seen = Seen(page)
        await page.goto(f"http://127.0.0.1:{worker.port}{path}")
        yield page
        assert seen.hosts == {f"127.0.0.1:{worker.port}"}
        assert [one for one in seen.complaints if not expected or expected not in one] == []


async def no_fault(page: Page) -> None:
    """axe-core finds nothing amiss, contrast included."""
    found = await Axe().run(page, options={"resultTypes": ["violations"]})
    assert found.violations_count == 0, found.generate_report()


async def fits(page: Page) -> None:
    """Nothing is wider than the screen."""
    width = await page.evaluate("document.documentElement.scrollWidth")
    assert width <= await page.evaluate("innerWidth"), width


async def has_level(page: Page, level: str) -> None:
    await expect(page.locator("#verdict")).to_have_attribute("data-level", level)


async def look_up(page: Page, hotel: str, room: str) -> str:
    """What the page says of a room, by way of the form."""
    await page.get_by_label("Hotel", exact=True).fill(hotel)
    await page.get_by_label("Room", exact=True).fill(room)
    async with page.expect_response(lambda one: "/ui/api/room?" in one.url):
        await page.get_by_role("button", name="Look up").click()
    result = page.get_by_role("region", name="Result of the look-up")
    await expect(result).not_to_contain_text("Asking")
    return await result.inner_text()


# --- rooms


async def know_rooms(world: World) -> Worker:
    """A worker that knows some odd rooms, written a minute ago and not again for a long time."""
    await world.prepare(cooldown_ms=600_000)
    worker = await world.start_worker().ready()
    sent = now_ms() - 60_000
    oracle = Oracle()
    rooms = [Heartbeat(7, room, sent, "tablet", 3) for room in ODD]
    rooms += [Heartbeat(8, f"{number}", sent) for number in range(100, 220)]
    await world.send(rooms, oracle=oracle)
    await oracle.matches(world.table)
    await world.no_lag()
    return worker


@on_embedded
async def test_rooms_and_hotels(world: World) -> None:
    worker = await know_rooms(world)
    async with browser() as running, opened(running, worker, expected=NOT_FOUND) as page:
        for room in ODD:
            said = await look_up(page, "7", room)
            assert f"Room {room}".strip() in said, (room, said)
            assert "of hotel 7" in said
            assert re.search(r"silent for \d+ (min|s)", said), said
            for part in ("at rest", "tablet", "the newest heartbeat"):
                assert part in said
            assert f"http://127.0.0.1:{worker.port}, partition" in said
        unknown = await look_up(page, "7", "nobody")
        assert "no heartbeat of this room is known. It would be in partition" in unknown
        # The address can be handed on.
        await look_up(page, "7", "房间/1")
        await page.reload()
        await expect(page.locator("#room-result h3")).to_have_text("Room 房间/1 of hotel 7")
        # Something newer is in its cooldown now.
        await world.send([Heartbeat(7, "大会议室", now_ms())])
        await worker.until_metric("heartbeat_rooms_pending", 1)
        assert "in cooldown, due in" in await look_up(page, "7", "大会议室")
        await all_pages_of_a_hotel(page)
        await no_fault(page)
        await by_keyboard_alone(page)


async def all_pages_of_a_hotel(page: Page) -> None:
    await look_up(page, "8", "nobody")
    await expect(page.locator("#room-result .problem")).to_be_visible()
    await page.get_by_role("button", name="All rooms of the hotel").click()
    rooms = page.locator("#hotel-rows th")
    await expect(rooms).to_have_count(50)
    await expect(page.locator("#hotel-title")).to_be_focused()
    await expect(page.locator("#hotel-title")).to_have_text("The first 50 rooms of hotel 8")
    await expect(page.locator("#room-result")).to_be_empty()
    further = page.get_by_role("button", name="Next page")
    seen = await rooms.all_inner_texts()
    for first, count in (("150", 50), ("200", 20)):
        await further.click()
        await expect(rooms.first).to_have_text(first)
        await expect(rooms).to_have_count(count)
        seen += await rooms.all_inner_texts()
    assert seen == [f"{number}" for number in range(100, 220)]
    await expect(further).to_be_disabled()
    await expect(page.locator("#hotel-title")).to_contain_text("20 rooms of hotel 8 on this page")
    await expect(page.locator("#hotel-missing")).to_be_hidden()
    await page.get_by_role("button", name="First page").click()
    await expect(rooms.first).to_have_text("100")
    await page.get_by_role("link", name="101", exact=True).click()
    await expect(page.locator("#room-result h3")).to_have_text("Room 101 of hotel 8")
    await expect(page.get_by_label("Room", exact=True)).to_have_value("101")


async def by_keyboard_alone(page: Page) -> None:
    await page.goto(page.url.partition("?")[0])
    await has_level(page, "well")
    await page.keyboard.press("Tab")
    await expect(page.locator(".skip")).to_be_focused()
    await expect(page.locator(".skip")).to_be_in_viewport()
    await page.keyboard.press("Enter")
    await expect(page.locator("#main")).to_be_focused()
    for _ in range(20):
        await page.keyboard.press("Tab")
        outline = await page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none", await page.evaluate("document.activeElement.outerHTML")
        if await page.evaluate("document.activeElement.id") == "hotel":
            break
    await page.keyboard.type("7")
    await page.keyboard.press("Tab")
    await page.keyboard.type("a&b=c")
    await page.keyboard.press("Enter")
    await expect(page.locator("#room-result h3")).to_have_text("Room a&b=c of hotel 7")


# --- all workers


@on_embedded
async def test_charts_and_tables_in_both_themes_on_a_desk_and_on_a_phone(world: World) -> None:
    await world.prepare()
    worker = await world.start_worker().ready()
    fleet = Fleet(hotels=2, rooms_per_hotel=50, broken_share=0.05)
    async with load(world, fleet, 200), browser() as running:
        for scheme, phone in (("light", False), ("dark", False), ("light", True), ("dark", True)):
            async with opened(running, worker, scheme=scheme, phone=phone) as page:
                await has_level(page, "well")
                await expect(page.locator("#verdict-text")).to_contain_text("heartbeats a second")
                await has_data(page)
                red = int(re.findall(r"\d+", await colour(page))[0])
                assert (red > 200) == (scheme == "light")
                width = await page.evaluate("innerWidth")
                assert (width == PHONE["width"]) == phone
                await fits(page)
                await no_fault(page)
                await words_are_whole(page)


async def words_are_whole(page: Page) -> None:
    """A table that has no room scrolls in its box, and what does so unseen says it."""
    for cell in ("#workers-rows .good", "#minutes-rows .time"):
        lines = await page.locator(cell).first.evaluate(
            "cell => {"
            "const words = document.createRange(); words.selectNodeContents(cell);"
            "return words.getClientRects().length }"
        )
        assert lines == 1, cell
    await page.evaluate("document.querySelector('.tall').style.maxHeight = '5rem'")
    await expect(page.locator("#lag-more")).to_contain_text(f"all {2 * PARTITIONS} partitions")


async def has_data(page: Page) -> None:
    for name in ("records", "rows", "saved", "pending"):
        picture = page.locator(f"#chart-{name} svg")
        await expect(picture.locator(".curve")).to_have_attribute("d", re.compile("^M.*L"))
        words = re.compile("over the last .*at most [1-9]")
        await expect(picture).to_have_attribute("aria-label", words)
    await expect(page.locator("#rooms dd[data-of=in_memory]")).to_have_text("100")
    await expect(page.locator("#workers-rows tr")).to_have_count(1)
    await expect(page.locator("#workers-rows")).to_contain_text("0–3")
    await expect(page.locator("#lag-rows tr")).to_have_count(2 * PARTITIONS)
    await expect(page.locator("#dead-letters-rows")).to_contain_text("not-json")
    await page.get_by_text("These figures as a table").click()
    await expect(page.locator("#minutes-rows tr").first).to_be_visible()


async def colour(page: Page) -> str:
    found: str = await page.evaluate("getComputedStyle(document.body).backgroundColor")
    return found


@on_embedded
async def test_signing_in(world: World) -> None:
    await world.prepare(web_token=TOKEN)
    worker = await world.start_worker().ready()
    async with browser() as running, context(running, phone=True) as profile:
        page = await profile.new_page()
        page.set_default_timeout(PATIENCE_MS)
        await page.goto(f"http://127.0.0.1:{worker.port}/ui/")
        assert page.url.endswith("/ui/sign-in")
        await no_fault(page)
        await fits(page)
        await page.get_by_label("Token").fill("another-token-altogether")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("alert")).to_have_text("That is not the token.")
        await sign_in(page)
        assert await page.evaluate("document.cookie") == ""
        (cookie,) = await profile.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        await page.get_by_role("button", name="Sign out").click()
        await expect(page.get_by_label("Token")).to_be_visible()
        assert await profile.cookies() == []
        # What was asked for is asked again. A link on another site, from which the cookie does not
        # come along, leads to it as well.
        path = "/ui/?hotel=7&room=%E5%A4%A7"
        here = f"http://127.0.0.1:{worker.port}{path}"
        await page.goto(here)
        await sign_in(page)
        assert page.url == here
        await page.goto(f"http://localhost:{worker.port}/ui/sign-in")
        await page.evaluate("address => { location.href = address }", here)
        await page.wait_for_url(here)
        await has_level(page, "well")
        # A page that is still open asks for the token again.
        await profile.clear_cookies()
        await expect(page.get_by_label("Token")).to_be_visible()


async def sign_in(page: Page) -> None:
    await page.get_by_label("Token").fill(TOKEN)
    await page.keyboard.press("Enter")
    await has_level(page, "well")


@on_embedded
async def test_what_is_wrong_is_said_first(world: World) -> None:
    """A database that is not there: said in words at the top, and the log's line is listed."""
    await world.prepare()
    nowhere = f"postgresql://nobody:secret-word@127.0.0.1:{free_port()}/none"
    worker = await world.start_worker(database_url=nowhere).ready()
    await world.send([Heartbeat(7, "101", now_ms(), "secret-payload")])
    async with browser() as running:
        async with opened(running, worker, phone=True, scheme="dark") as page:
            await has_level(page, "trouble")
            await expect(page.locator("#verdict-text")).to_contain_text("The database takes no row")
            await expect(page.get_by_role("status")).to_contain_text("The database takes no rows")
            errors = page.locator("#errors-list")
            await expect(errors).to_contain_text("the database does not take rows")
            text = await page.inner_text("body")
            assert "secret-word" not in text
            assert "secret-payload" not in text
            assert await page.title() == "✕ heartbeat-stream"
            await fits(page)
            await no_fault(page)
        async with context(running) as profile:
            page = await profile.new_page()
            await page.goto(f"http://127.0.0.1:{worker.port}/ui/")
            await has_level(page, "trouble")
            await worker.kill()
            said = page.locator("#verdict-text")
            await expect(said).to_have_text("This worker does not answer.", timeout=PATIENCE_MS)
            await expect(page.locator("#updated")).to_contain_text("What is shown is of")
