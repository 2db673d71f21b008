"""How one worker is: what it tells the others, so that each can show all of them."""

from typing import TYPE_CHECKING

import msgspec

from heartbeat_stream import __version__
from heartbeat_stream.history import Figures, Sample
from heartbeat_stream.recent_errors import ErrorLine

if TYPE_CHECKING:
    from heartbeat_stream.app import Worker
    from heartbeat_stream.jobs.heartbeats import HeartbeatJob

__all__ = ["PartitionLag", "Rooms", "Summary", "figures_of", "heartbeat_job", "summary_of"]


class Rooms(msgspec.Struct):
    """Rooms with something to write, by what they wait for, and all that are in memory."""

    pending: int = 0
    cooling: int = 0
    waiting: int = 0
    due: int = 0
    in_flight: int = 0
    in_memory: int = 0


class PartitionLag(msgspec.Struct):
    """How far behind the worker is in a partition that it reads."""

    topic: str
    partition: int
    records: int
    seconds: float


class Summary(msgspec.Struct, kw_only=True):
    """One worker. Times are in ms since 1970 by its clock; counts are since it was started."""

    url: str
    app_id: str
    version: str
    now_ms: int
    ready: bool
    live: bool
    waiting_for: str | None
    """What a worker that is starting waits for."""
    recovered: bool
    partitions: list[int]
    """Those that are its own and recovered."""
    partitions_total: int | None
    database_error: str | None
    checkpoint_error: str | None
    session_lapsed: bool
    checkpoint_age_s: float | None
    checkpoint_interval_s: float
    fetch_age_s: float | None
    rooms: Rooms
    records: int
    rows: int
    lag: list[PartitionLag]
    dead_letters: dict[str, int]
    errors: list[ErrorLine]
    history: list[Sample]


def heartbeat_job(worker: "Worker") -> "HeartbeatJob | None":
    """The main job; None where the worker does not run it, or not yet."""
    return worker.job if worker.built and "heartbeats" in worker.jobs else None


def figures_of(worker: "Worker") -> Figures | None:
    """Where the counters stand; None where there are none."""
    job = heartbeat_job(worker)
    if job is None:
        return None
    schedule = job.schedule
    return Figures(
        records=job.counts["records"],
        rows=job.drain.rows_written,
        dead_letters=worker.dead_letters.by_reason.total(),
        pending=schedule.pending,
        due=schedule.due(worker.clock.now_ms()),
        cooling=schedule.cooling,
        refused=job.drain.rows_refused,
    )


def summary_of(worker: "Worker") -> Summary:
    """This worker as it is now. Sends no request and scans no table."""
    ready = worker.readiness()
    summary = Summary(
        url=worker.settings.web_url,
        app_id=worker.settings.app_id,
        version=__version__,
        now_ms=worker.clock.now_ms(),
        ready=bool(ready["ready"]),
        live=bool(worker.liveness()["live"]),
        waiting_for=ready.get("waiting_for"),
        recovered=bool(ready["recovered"]),
        partitions=[],
        partitions_total=None,
        database_error=ready.get("database_error"),
        checkpoint_error=ready.get("checkpoint_error"),
        session_lapsed=bool(ready.get("session_lapsed")),
        checkpoint_age_s=None,
        checkpoint_interval_s=worker.settings.checkpoint_ms / 1000,
        fetch_age_s=None,
        rooms=Rooms(),
        records=0,
        rows=0,
        lag=[],
        dead_letters={},
        errors=worker.errors.lines(),
        history=worker.history.samples(),
    )
    if worker.built:
        _add_work(summary, worker)
    job, figures = heartbeat_job(worker), figures_of(worker)
    if job is not None and figures is not None:
        _add_rooms(summary, job, figures)
    return summary


def _add_work(summary: Summary, worker: "Worker") -> None:
    """What there is once a worker knows its topics."""
    job = heartbeat_job(worker) or next(iter(worker.jobs.values()))
    summary.partitions = sorted(worker.engine.owned[job.name])
    summary.partitions_total = job.tables[0].partitions
    summary.checkpoint_age_s = worker.engine.checkpoint_age_s
    summary.fetch_age_s = worker.fetch_age_s()
    summary.lag = [
        PartitionLag(tp.topic, tp.partition, one.records, one.seconds)
        for tp, one in sorted(worker.lags().items())
    ]
    summary.dead_letters = {
        str(reason): count for reason, count in worker.dead_letters.by_reason.items() if count
    }


def _add_rooms(summary: Summary, job: "HeartbeatJob", figures: Figures) -> None:
    schedule = job.schedule
    summary.rooms = Rooms(
        pending=figures.pending,
        cooling=figures.cooling,
        waiting=schedule.waiting,
        due=figures.due,
        in_flight=schedule.in_flight,
        in_memory=sum(len(shard.rooms) for shard in job.shards.values()),
    )
    summary.records, summary.rows = figures.records, figures.rows
