"""``/router/``: which worker has which partitions, and which key.

Faust's own pages fail on a table that does not exist, and look for a key by its JSON form, while
records are placed by its bytes.
"""

from typing import TYPE_CHECKING, Any, cast

from faust import web
from faust.types import TP
from yarl import URL

from heartbeat_stream.core.partition import partition_for

if TYPE_CHECKING:
    from heartbeat_stream.streaming.tables import StateTable

__all__ = ["blueprint", "key_bytes", "owner_of"]

blueprint = web.Blueprint("router")


def key_bytes(key: str) -> bytes:
    """The key that a path names, also where it is not UTF-8."""
    return key.encode(errors="surrogateescape")


def owner_of(app: Any, table: "StateTable", key: bytes) -> URL | None:
    """The web view of the worker that owns a key; None where that is not known at the moment."""
    tp = TP(table.changelog, partition_for(key, table.partitions or 1))
    for url, topics in app.router.tables_metadata().items():
        if tp.partition in topics.get(tp.topic, ()):
            return URL(url)
    return None


@blueprint.route("/", name="list")
class TableList(web.View):
    """All workers with their partitions of all tables."""

    async def get(self, request: web.Request) -> web.Response:
        return self.json(self.app.router.tables_metadata())


@blueprint.route("/topics", name="topics")
class TopicList(web.View):
    """All workers with their partitions of the topics that they read."""

    async def get(self, request: web.Request) -> web.Response:
        return self.json(self.app.router.external_topics_metadata())


@blueprint.route("/{name}/", name="detail")
class TableDetail(web.View):
    """All workers with their partitions of one table."""

    async def get(self, request: web.Request, name: str) -> web.Response:
        if name not in self.app.tables:
            return self.json({"error": f"there is no table {name}"}, status=404)
        return self.json(self.app.router.table_metadata(name))


@blueprint.route("/{name}/{key:(?s:.+)}/", name="key-detail")
class TableKey(web.View):
    """The address of the worker that owns a key."""

    async def get(self, request: web.Request, name: str, key: str) -> web.Response:
        table = cast("StateTable | None", self.app.tables.get(name))
        if table is None:
            return self.json({"error": f"there is no table {name}"}, status=404)
        owner = owner_of(self.app, table, key_bytes(key))
        if owner is None:
            return self.json({"error": "not known at the moment: ask again"}, status=503)
        return self.json(str(owner))
