"""``/table/``: what the tables hold of a room now, asked of any worker.

Faust's own view asks for the owner by the JSON form of the key, while records are placed by its
bytes; and it reads the table, which is behind memory until the next checkpoint.
"""

from typing import cast

import msgspec
from faust import web
from yarl import URL

from heartbeat_stream.core.partition import partition_for
from heartbeat_stream.streaming.store import StoreError
from heartbeat_stream.streaming.tables import StateTable
from heartbeat_stream.web.peers import ROUTED, Unreachable, ask
from heartbeat_stream.web.router import key_bytes, owner_of
from heartbeat_stream.web.view import WorkerView

__all__ = ["blueprint"]

blueprint = web.Blueprint("tables")


@blueprint.route("/", name="list")
class TableList(WorkerView):
    """The names of all tables."""

    async def get(self, request: web.Request) -> web.Response:
        return self.json([{"table": name} for name in self.app.tables])


@blueprint.route("/{name}/", name="detail")
class TableDetail(WorkerView):
    """One table."""

    async def get(self, request: web.Request, name: str) -> web.Response:
        table = cast("StateTable | None", self.app.tables.get(name))
        if table is None:
            return self.json({"error": f"there is no table {name}"}, status=404)
        return self.json({"table": name, "changelog": table.changelog})


# A room id may hold anything, a newline too.
@blueprint.route("/{name}/{key:(?s:.+)}/", name="key-detail")
class TableKey(WorkerView):
    """One key of one table, from the worker that owns it."""

    async def get(self, request: web.Request, name: str, key: str) -> web.Response:
        table = cast("StateTable | None", self.app.tables.get(name))
        if table is None:
            return self.json({"error": f"there is no table {name}"}, status=404)
        raw = key_bytes(key)
        job = self.worker.job_of(name)
        partition = partition_for(raw, table.partitions or 1)
        if job is not None and job.owns(partition):
            try:
                value = job.look_up(name, raw)
            except StoreError as exc:
                return self.json({"error": str(exc)}, status=503)
            if value is None:
                return self.json({"error": f"{key} is not in the table {name}"}, status=404)
            return self.web.bytes(msgspec.json.encode(value), content_type="application/json")
        owner = owner_of(self.app, table, raw)
        if owner is None or ROUTED in request.headers:
            return self.json(
                {"error": "the worker that owns this key is not known at the moment: ask again"},
                status=503,
            )
        return await self._ask(owner, request)

    async def _ask(self, owner: URL, request: web.Request) -> web.Response:
        try:
            answer = await ask(self.worker, owner, request.rel_url.raw_path)
        except Unreachable as exc:
            return self.failed(503, str(exc))
        return self.web.bytes(answer.body, content_type=answer.content_type, status=answer.status)
