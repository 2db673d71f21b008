"""Headless Chromium, driven by Playwright: Debian's, since Playwright's own would be downloaded."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

from playwright.async_api import Browser, BrowserContext, Page, async_playwright

__all__ = ["CHROMIUM", "DESK", "PHONE", "Scheme", "Seen", "browser", "context", "is_there"]

Scheme = Literal["light", "dark"]

CHROMIUM = "chromium"
PHONE = {"width": 390, "height": 844}
DESK = {"width": 1280, "height": 900}


def is_there() -> bool:
    return shutil.which(CHROMIUM) is not None


@asynccontextmanager
async def browser() -> AsyncIterator[Browser]:
    """One browser, which ends with the block."""
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(
            executable_path=shutil.which(CHROMIUM),
            # As root, in a container, Chromium cannot make the sandbox that it wants.
            chromium_sandbox=os.geteuid() != 0,
        )
        try:
            yield started
        finally:
            await started.close()


@asynccontextmanager
async def context(
    running: Browser,
    *,
    scheme: Scheme = "light",
    phone: bool = False,
    scale: float = 1.0,
) -> AsyncIterator[BrowserContext]:
    """A profile of its own: no cookies, a theme, and the size of a desk's or a phone's screen."""
    made = await running.new_context(
        color_scheme=scheme,
        viewport=PHONE if phone else DESK,  # type: ignore[arg-type]
        is_mobile=phone,
        has_touch=phone,
        device_scale_factor=scale,
        reduced_motion="reduce",
        locale="en-GB",
    )
    try:
        yield made
    finally:
        await made.close()


class Seen:
    """What a page has asked for, and what its console has said: both must stay in order."""

    def __init__(self, page: Page) -> None:
        self.hosts: set[str] = set()
        self.complaints: list[str] = []
        page.on("request", lambda request: self.hosts.add(request.url.split("/")[2]))
        page.on("console", self._note)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _note(self, message: object) -> None:
        kind, text = message.type, message.text  # type: ignore[attr-defined]
        if kind in ("error", "warning"):
            self.complaints.append(f"{kind}: {text}")
