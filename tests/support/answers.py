"""Asking a worker's web view, with headers and without following where it leads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import aiohttp
from multidict import CIMultiDictProxy
from yarl import URL

__all__ = ["Answer", "ask"]


class Answer(NamedTuple):
    status: int
    headers: CIMultiDictProxy[str]
    text: str


async def ask(
    port: int,
    path: str,
    headers: Mapping[str, str] | None = None,
    *,
    method: str = "GET",
    form: Mapping[str, str] | None = None,
) -> Answer:
    """One request to a worker on loopback; the path has its odd characters escaped already."""
    url = URL(f"http://127.0.0.1:{port}{path}", encoded=True)
    timeout = aiohttp.ClientTimeout(total=20)
    async with (
        aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as session,
        session.request(method, url, headers=headers, data=form, allow_redirects=False) as answer,
    ):
        return Answer(answer.status, answer.headers, await answer.text())
