"""A room as a running worker has it, what is not yet checkpointed included."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import aiohttp
import msgspec
from yarl import URL

from heartbeat_stream.core.heartbeat import room_key
from heartbeat_stream.jobs.heartbeat_tables import LATEST, WRITTEN
from heartbeat_stream.recovery.errors import RecoveryError

__all__ = ["ask_worker"]

_TIMEOUT_S = 15.0


async def ask_worker(
    base_url: str, hotel: int, room: str, headers: dict[str, str]
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """What `latest` and `last_written_at` hold of it. Any worker of the group may be asked.

    Raises RecoveryError where it does not answer, or does not know the room.
    """
    key = quote(room_key(hotel, room), safe="")
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
    try:
        async with aiohttp.ClientSession(timeout=timeout, headers=headers) as session:
            latest = await _get(session, f"{base_url.rstrip('/')}/table/{LATEST}/{key}/")
            if latest is None:
                raise RecoveryError(f"the workers do not know hotel {hotel}, room {room}")
            return latest, await _get(session, f"{base_url.rstrip('/')}/table/{WRITTEN}/{key}/")
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise RecoveryError(
            f"no worker answers at {base_url} ({type(error).__name__}): see its HEARTBEAT_WEB_URL, "
            "or leave --url out, to read the changelogs"
        ) from error


async def _get(session: aiohttp.ClientSession, url: str) -> dict[str, Any] | None:
    async with session.get(URL(url, encoded=True), allow_redirects=False) as response:
        body = await response.read()
        if response.status == 404:
            return None
        if response.status != 200:
            raise RecoveryError(f"{url} answers with {response.status}: {body[:200]!r}")
        try:
            found: dict[str, Any] = msgspec.json.decode(body, type=dict[str, Any])
        except msgspec.DecodeError:
            raise RecoveryError(f"{url} answers with something else than a worker does") from None
        return found
