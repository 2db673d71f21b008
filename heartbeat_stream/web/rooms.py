"""``/ui/api/room`` and ``/ui/api/rooms``: one room, and the rooms of a hotel, or of all, by pages.

Hotel and room are parameters of the query, since a room id may hold anything that means something
in a path.
"""

import asyncio
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
from faust import web

from heartbeat_stream.core import fields
from heartbeat_stream.core.heartbeat import room_key
from heartbeat_stream.core.partition import partition_for
from heartbeat_stream.core.reasons import Rejected
from heartbeat_stream.jobs.looking import RoomState, hotel_prefix
from heartbeat_stream.streaming.store import StoreError
from heartbeat_stream.web.peers import ROUTED, Answer, Unreachable, ask, others
from heartbeat_stream.web.router import owner_of
from heartbeat_stream.web.summary import heartbeat_job
from heartbeat_stream.web.view import WorkerView

if TYPE_CHECKING:
    from heartbeat_stream.app import Worker
    from heartbeat_stream.jobs.heartbeats import HeartbeatJob

__all__ = ["LIMIT", "LIMIT_MAX", "blueprint"]

blueprint = web.Blueprint("ui-rooms")

LIMIT: Final = 50
LIMIT_MAX: Final = 200


class RoomAnswer(RoomState, kw_only=True):
    """A room, who owns it, and what the worker's clock says."""

    owner: str
    now_ms: int
    silent_ms: int
    """Since the newest heartbeat, by the device's clock; not below 0."""
    rests_until: int | None
    """When its cooldown ends, if that is to come."""


class Part(msgspec.Struct):
    """Rooms out of the partitions of one worker."""

    rooms: list[RoomAnswer]
    partitions: list[int]


class Page(msgspec.Struct):
    """Rooms in the order of their keys. ``next`` is to be given as ``after`` to see more; None at
    the end. ``missing`` says, in lines for people, what could not be looked at."""

    rooms: list[RoomAnswer]
    next: str | None
    missing: list[str]
    now_ms: int


_read_part = msgspec.json.Decoder(Part).decode


@blueprint.route("/room", name="room")
class OneRoom(WorkerView):
    """One room, from the worker that owns it."""

    async def get(self, request: web.Request) -> web.Response:
        worker = self.worker
        query = _query(request)
        try:
            hotel_id = fields.hotel_id(query.get("hotel"))
            room_id = fields.room_id(query.get("room"))
        except Rejected as exc:
            return self.failed(400, exc.detail)
        job = heartbeat_job(worker)
        if job is None:
            return self.failed(503, _no_rooms(worker))
        table = job.tables[0]
        key = room_key(hotel_id, room_id)
        partition = partition_for(key, table.partitions or 1)
        if job.owns(partition):
            return self._own(job, partition, key)
        owner = owner_of(self.app, table, key)
        if owner is None or ROUTED in request.headers:
            return self.failed(503, f"nobody owns partition {partition} at the moment: ask again")
        try:
            answer = await ask(worker, owner, request.rel_url.raw_path_qs)
        except Unreachable as exc:
            return self.failed(503, str(exc))
        return self.web.bytes(answer.body, content_type=answer.content_type, status=answer.status)

    def _own(self, job: "HeartbeatJob", partition: int, key: bytes) -> web.Response:
        worker = self.worker
        try:
            state = job.rooms.look(partition, key)
        except StoreError as exc:
            return self.failed(503, str(exc))
        if state is None:
            error = "no heartbeat of this room is known"
            owner = worker.settings.web_url
            return self.encoded({"error": error, "partition": partition, "owner": owner}, 404)
        return self.encoded(_answer(worker, state))


@blueprint.route("/rooms", name="rooms")
class SeveralRooms(WorkerView):
    """A page of the rooms of a hotel, or of all hotels, out of the partitions of all workers."""

    async def get(self, request: web.Request) -> web.Response:
        worker = self.worker
        query = _query(request)
        try:
            prefix, after = _stretch(query)
            limit = _limit(query.get("limit"))
        except Rejected as exc:
            return self.failed(400, exc.detail)
        except ValueError:
            return self.failed(400, f"limit should be a whole number from 1 to {LIMIT_MAX}")
        job = heartbeat_job(worker)
        if job is None:
            return self.failed(503, _no_rooms(worker))
        try:
            own = await _own_part(worker, job, prefix, after, limit + 1)
        except StoreError as exc:
            return self.failed(503, str(exc))
        if ROUTED in request.headers:
            return self.encoded(own)
        total = job.tables[0].partitions or 0
        page = await _whole_page(worker, own, request.rel_url.raw_path_qs, limit, total)
        if page.next is not None:
            page.next = page.next.removeprefix(prefix.decode())
        return self.encoded(page)


def _no_rooms(worker: "Worker") -> str:
    if worker.built:
        return "this worker does not run the job heartbeats"
    return "this worker is starting: ask again"


def _query(request: web.Request) -> Any:
    return cast("Any", request).query


def _stretch(query: Any) -> tuple[bytes, bytes]:
    """What the keys of the rooms begin with, and the key behind which they come.

    Where no hotel is named, ``after`` names one: ``7:101``. Raises Rejected.
    """
    hotel, after = query.get("hotel"), query.get("after") or ""
    prefix = b"" if hotel is None else hotel_prefix(fields.hotel_id(hotel))
    if not after:
        return prefix, b""
    if hotel is None:
        hotel, _, after = after.partition(":")
    return prefix, room_key(fields.hotel_id(hotel), fields.room_id(after))


def _limit(text: str | None) -> int:
    """Raises ValueError."""
    if text is None:
        return LIMIT
    if not (text.isascii() and text.isdigit() and len(text) < 4 and 1 <= int(text) <= LIMIT_MAX):
        raise ValueError
    return int(text)


def _answer(worker: "Worker", state: RoomState) -> RoomAnswer:
    now_ms = worker.clock.now_ms()
    rests_until = state.written.at + worker.settings.cooldown_ms if state.written else 0
    return RoomAnswer(
        **msgspec.structs.asdict(state),
        owner=worker.settings.web_url,
        now_ms=now_ms,
        silent_ms=max(0, now_ms - state.newest.ts_ms),
        rests_until=rests_until if rests_until > now_ms else None,
    )


def _key(room: RoomAnswer) -> bytes:
    return room_key(room.newest.hotel_id, room.newest.room_id)


async def _own_part(
    worker: "Worker", job: "HeartbeatJob", prefix: bytes, after: bytes, limit: int
) -> Part:
    owned = sorted(worker.engine.owned[job.name])
    states = await job.rooms.page(owned, prefix, after, limit)
    return Part([_answer(worker, state) for state in states], owned)


async def _whole_page(worker: "Worker", own: Part, raw_path: str, limit: int, total: int) -> Page:
    parts, missing = [own], []
    urls = others(worker)
    for found in await asyncio.gather(*(_part_of(worker, url, raw_path) for url in urls)):
        if isinstance(found, Part):
            parts.append(found)
        else:
            missing.append(found)
    looked_at = {partition for part in parts for partition in part.partitions}
    if len(looked_at) < total and not missing:
        missing.append(f"{total - len(looked_at)} of {total} partitions are nobody's at the moment")
    rooms = sorted((room for part in parts for room in part.rooms), key=_key)
    more = _key(rooms[limit - 1]).decode() if len(rooms) > limit else None
    return Page(rooms[:limit], more, missing, worker.clock.now_ms())


async def _part_of(worker: "Worker", url: str, raw_path: str) -> Part | str:
    try:
        answer: Answer = await ask(worker, url, raw_path)
        return _read_part(answer.body)
    except Unreachable as exc:
        return str(exc)
    except msgspec.DecodeError:
        return f"{url} cannot look at its rooms: {answer.body[:200].decode(errors='replace')}"
