"""Rooms as the running workers have them, what is not yet checkpointed included.

Any worker may be asked: it asks the others. Where they are guarded, the settings' token is shown.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar
from urllib.parse import quote

import aiohttp
import msgspec
from yarl import URL

from heartbeat_stream.core.heartbeat import Heartbeat
from heartbeat_stream.core.room import Written
from heartbeat_stream.recovery.errors import RecoveryError
from heartbeat_stream.recovery.exporting import Record
from heartbeat_stream.settings import Settings

__all__ = ["ask_for_room", "ask_for_rooms"]

_TIMEOUT_S = 15.0
_PAGE = 200

Answer = TypeVar("Answer")


class _Room(msgspec.Struct):
    """What is needed of a room as workers tell it."""

    newest: Heartbeat
    written: Written | None
    source_partition: int
    source_offset: int


class _Page(msgspec.Struct):
    rooms: list[_Room]
    next: str | None
    missing: list[str]


class _Unknown(msgspec.Struct):
    """Of a room that is not known."""

    error: str
    owner: str


class _Asking:
    """A worker's web view."""

    def __init__(self, session: aiohttp.ClientSession, base_url: str, *, with_token: bool) -> None:
        self._session = session
        self._turned_away = (
            "the workers do not take this HEARTBEAT_WEB_TOKEN: theirs is another one"
            if with_token
            else "the workers ask for a token: set HEARTBEAT_WEB_TOKEN to theirs"
        )
        self._base_url = base_url

    async def get(self, path: str, form: type[Answer]) -> Answer | None:
        """What is there; None for a room that is not known. Raises RecoveryError."""
        url = URL(f"{self._base_url}{path}", encoded=True)
        async with self._session.get(url, allow_redirects=False) as response:
            body = await response.read()
        if response.status == 401:
            raise RecoveryError(self._turned_away)
        if response.status not in (200, 404):
            said = " ".join(body[:200].decode(errors="replace").split())
            raise RecoveryError(f"the worker answers with {response.status}: {said}")
        try:
            if response.status == 404:
                msgspec.json.decode(body, type=_Unknown)
                return None
            return msgspec.json.decode(body, type=form)
        except msgspec.DecodeError:
            raise RecoveryError(
                f"what answers at {self._base_url} is no worker, or one of another version"
            ) from None


@asynccontextmanager
async def _asking(settings: Settings, base_url: str) -> AsyncIterator[_Asking]:
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
        path = f"/ui/api/room?hotel={hotel}&room={quote(room, safe='')}"
        found = await worker.get(path, _Room)
    if found is None:
        raise RecoveryError(f"the workers do not know hotel {hotel}, room {room}")
    record = _as_record(found)
    del record["arrived_at"]
    return record


async def ask_for_rooms(
    settings: Settings, base_url: str, hotel: int | None
) -> AsyncGenerator[list[Record]]:
    """All rooms, of one hotel or of all, a page at a time, in the order of their keys.

    They do not tell since when something waits: `arrived_at` is None. Raises RecoveryError as
    :func:`ask_for_room` does, and where some of the rooms cannot be looked at.
    """
    of_hotel = "" if hotel is None else f"&hotel={hotel}"
    after = ""
    async with _asking(settings, base_url) as worker:
        while True:
            query = f"limit={_PAGE}&after={quote(after, safe='')}{of_hotel}"
            page = await worker.get(f"/ui/api/rooms?{query}", _Page)
            if page is None:
                raise RecoveryError(f"{base_url} is no worker, or one of an older version")
            if page.missing:
                raise RecoveryError(f"not all rooms can be looked at: {page.missing[0]}")
            yield [_as_record(room) for room in page.rooms]
            if page.next is None:
                return
            after = page.next


def _as_record(room: _Room) -> Record:
    newest, written = room.newest, room.written
    return {
        "hotel_id": newest.hotel_id,
        "room_id": newest.room_id,
        "device_id": newest.device_id,
        "ts_ms": newest.ts_ms,
        "status": newest.status,
        "source_partition": room.source_partition,
        "source_offset": room.source_offset,
        "arrived_at": None,
        "written_at": written.at if written is not None else None,
        "written_ts_ms": written.ts_ms if written is not None else None,
    }
