"""Rooms as the running workers have them, what is not yet checkpointed included.

Any worker may be asked: it asks the others. Where they are guarded, the settings' token is shown.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import aiohttp
import msgspec
from yarl import URL

from heartbeat_stream.recovery.errors import RecoveryError
from heartbeat_stream.recovery.exporting import Record
from heartbeat_stream.settings import Settings

__all__ = ["ask_for_hotel", "ask_for_room"]

_TIMEOUT_S = 15.0
_PAGE = 200


class _Asking:
    """A worker's web view."""

    def __init__(self, session: aiohttp.ClientSession, base_url: str, *, with_token: bool) -> None:
        self._session = session
        self._turned_away = (
            "the workers do not take this HEARTBEAT_WEB_TOKEN: theirs is another one"
            if with_token
            else "the workers ask for a token: set HEARTBEAT_WEB_TOKEN to theirs"
        )
        self._base_url = base_url.rstrip("/")

    async def get(self, path: str) -> dict[str, Any] | None:
        """The JSON object there; None for a 404."""
        url = URL(f"{self._base_url}{path}", encoded=True)
        async with self._session.get(url, allow_redirects=False) as response:
            body = await response.read()
        if response.status == 404:
            return None
        if response.status == 401:
            raise RecoveryError(self._turned_away)
        if response.status != 200:
            said = " ".join(body[:200].decode(errors="replace").split())
            raise RecoveryError(f"the worker answers with {response.status}: {said}")
        try:
            return msgspec.json.decode(body, type=dict[str, Any])
        except msgspec.DecodeError:
            raise RecoveryError(f"what answers at {self._base_url} is no worker") from None


@asynccontextmanager
async def _asking(settings: Settings, base_url: str) -> AsyncIterator[_Asking]:
    base_url = base_url if "://" in base_url else f"http://{base_url}"
    token = settings.web_token
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
    try:
        async with aiohttp.ClientSession(timeout=timeout, headers=headers) as session:
            yield _Asking(session, base_url, with_token=token is not None)
    except (aiohttp.ClientError, TimeoutError) as error:
        raise RecoveryError(
            f"no worker answers at {base_url} ({type(error).__name__}): see its HEARTBEAT_WEB_URL, "
            "or leave --url out, to read the changelogs"
        ) from error


async def ask_for_room(settings: Settings, base_url: str, hotel: int, room: str) -> Record:
    """All that is known of a room, but for `arrived_at`, which they do not tell.

    Raises RecoveryError where no worker answers, or none knows the room.
    """
    async with _asking(settings, base_url) as worker:
        found = await worker.get(f"/ui/api/room?hotel={hotel}&room={quote(room, safe='')}")
    if found is None:
        raise RecoveryError(f"the workers do not know hotel {hotel}, room {room}")
    record = _as_record(found)
    del record["arrived_at"]
    return record


async def ask_for_hotel(
    settings: Settings, base_url: str, hotel: int
) -> AsyncGenerator[list[Record]]:
    """All rooms of a hotel, a page at a time, in the order of their names.

    They do not tell since when something waits: `arrived_at` is None. Raises RecoveryError as
    :func:`ask_for_room` does, and where some of the rooms cannot be looked at.
    """
    after = ""
    async with _asking(settings, base_url) as worker:
        while True:
            query = f"hotel={hotel}&limit={_PAGE}&after={quote(after, safe='')}"
            page = await worker.get(f"/ui/api/rooms?{query}")
            if page is None:
                raise RecoveryError(f"{base_url} is no worker, or one of an older version")
            if page["missing"]:
                raise RecoveryError(f"not all rooms can be looked at: {page['missing'][0]}")
            yield [_as_record(room) for room in page["rooms"]]
            if page["next"] is None:
                return
            after = page["next"]


def _as_record(room: dict[str, Any]) -> Record:
    newest, written = room["newest"], room["written"] or {}
    return {
        **{name: newest[name] for name in ("hotel_id", "room_id", "device_id", "ts_ms", "status")},
        "source_partition": room["source_partition"],
        "source_offset": room["source_offset"],
        "arrived_at": None,
        "written_at": written.get("at"),
        "written_ts_ms": written.get("ts_ms"),
    }
