"""``/ui/api/overview`` and ``/ui/api/worker``: how all workers are, and how this one is."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from faust import web

from heartbeat_stream.history import INTERVAL_MS, Sample, add_up
from heartbeat_stream.recent_errors import ErrorLine
from heartbeat_stream.web.peers import Unreachable, ask, others
from heartbeat_stream.web.summary import PartitionLag, Rooms, Summary, summary_of
from heartbeat_stream.web.verdict import Verdict, judge
from heartbeat_stream.web.view import WorkerView

if TYPE_CHECKING:
    from heartbeat_stream.app import Worker

__all__ = ["Overview", "blueprint", "overview_of"]

blueprint = web.Blueprint("ui-overview")

_ERRORS_MAX = 50
#: So long after its begin every worker has told about an interval.
_COMPLETE_MS = INTERVAL_MS + 1_000
_read_summary = msgspec.json.Decoder(Summary).decode


class WorkerLine(msgspec.Struct):
    """A worker in the list of all. One that does not answer has only an address and an error."""

    url: str
    asked: bool = False
    """Whether it is the one that has been asked."""
    ready: bool = False
    partitions: list[int] = []
    pending: int = 0
    error: str | None = None


class WorkerLag(PartitionLag):
    """A lag, and whose it is."""

    worker: str


class WorkerError(ErrorLine):
    """A line of a worker's log."""

    worker: str = ""


class Overview(msgspec.Struct, kw_only=True):
    """All workers together: sums, lists, and a verdict in words."""

    guarded: bool
    """Whether there is a token, and so somebody to be signed out."""
    verdict: Verdict
    app_id: str
    version: str
    now_ms: int
    partitions_total: int | None
    workers: list[WorkerLine]
    rooms: Rooms
    lag: list[WorkerLag]
    dead_letters: dict[str, int]
    errors: list[WorkerError]
    interval_ms: int = INTERVAL_MS
    columns: tuple[str, ...] = Sample.__struct_fields__
    history: list[Sample]


@blueprint.route("/worker", name="worker")
class OneWorker(WorkerView):
    """This worker alone."""

    async def get(self, request: web.Request) -> web.Response:
        return self.encoded(summary_of(self.worker))


@blueprint.route("/overview", name="overview")
class AllWorkers(WorkerView):
    """All workers: this one asks the others."""

    async def get(self, request: web.Request) -> web.Response:
        summaries, unreachable = await _summaries(self.worker)
        guarded = self.worker.access.guarded
        return self.encoded(overview_of(summaries, unreachable, guarded=guarded))


async def _summaries(worker: "Worker") -> tuple[list[Summary], dict[str, str]]:
    """This worker's first, then the others'; and why somebody's is missing, by address."""
    summaries, unreachable = [summary_of(worker)], {}
    urls = others(worker)
    for url, found in zip(
        urls, await asyncio.gather(*(_summary(worker, url) for url in urls)), strict=True
    ):
        if isinstance(found, Summary):
            summaries.append(found)
        else:
            unreachable[url] = found
    return summaries, unreachable


async def _summary(worker: "Worker", url: str) -> Summary | str:
    try:
        answer = await ask(worker, url, "/ui/api/worker")
        return _read_summary(answer.body)
    except Unreachable as exc:
        return str(exc)
    except msgspec.DecodeError:
        return f"{url} gives an answer that is not understood: is it of another version?"


def overview_of(
    summaries: Sequence[Summary], unreachable: Mapping[str, str], *, guarded: bool = False
) -> Overview:
    """Add workers up. The first of them is the one that was asked."""
    asked = summaries[0]
    # Others may not have told about the interval that has ended just now.
    ended = asked.now_ms - _COMPLETE_MS
    history = [one for one in add_up(one.history for one in summaries) if one.at_ms <= ended]
    dead_letters: Counter[str] = Counter()
    for one in summaries:
        dead_letters.update(one.dead_letters)
    return Overview(
        guarded=guarded,
        verdict=judge(summaries, unreachable, history),
        app_id=asked.app_id,
        version=asked.version,
        now_ms=asked.now_ms,
        partitions_total=asked.partitions_total,
        workers=_lines(summaries, unreachable),
        rooms=Rooms(
            *(
                sum(getattr(one.rooms, field) for one in summaries)
                for field in Rooms.__struct_fields__
            )
        ),
        lag=[
            WorkerLag(lag.topic, lag.partition, lag.records, lag.seconds, one.url)
            for one in summaries
            for lag in one.lag
        ],
        dead_letters=dict(dead_letters.most_common()),
        errors=_errors(summaries),
        history=history,
    )


def _lines(summaries: Sequence[Summary], unreachable: Mapping[str, str]) -> list[WorkerLine]:
    lines = [
        WorkerLine(one.url, number == 0, one.ready, one.partitions, one.rooms.pending)
        for number, one in enumerate(summaries)
    ]
    lines += [WorkerLine(url, error=why) for url, why in unreachable.items()]
    return sorted(lines, key=lambda line: line.url)


def _errors(summaries: Sequence[Summary]) -> list[WorkerError]:
    """The latest first."""
    lines = [
        WorkerError(line.at_ms, line.level, line.source, line.text, line.times, one.url)
        for one in summaries
        for line in one.errors
    ]
    return sorted(lines, key=lambda line: line.at_ms, reverse=True)[:_ERRORS_MAX]
