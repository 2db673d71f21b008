"""Where each figure comes from. Figures are read when they are asked for: counting costs little.

Every function here takes a worker and answers samples by metric name: a number, a distribution,
or, for a metric with labels, label values with a number each. None of them sends a request or scans
a table.
"""

import platform
import shutil
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Final, cast

from heartbeat_stream import __version__
from heartbeat_stream.core.reasons import Reason
from heartbeat_stream.distribution import Distribution
from heartbeat_stream.jobs.stream_job import StreamJob

if TYPE_CHECKING:
    from heartbeat_stream.app import Worker
    from heartbeat_stream.jobs.tracking import TrackingJob

__all__ = ["FROM_THE_START", "OF_JOB", "ONCE_BUILT", "Labelled", "Reading", "Samples"]

Labelled = Sequence[tuple[tuple[str, ...], float]]
Samples = float | Distribution | Labelled | Mapping[str, str]
Reading = Callable[["Worker"], Mapping[str, Samples]]

_VERSIONS: Final = {
    "version": __version__,
    "python": platform.python_version(),
    "faust": version("faust-streaming"),
    "aiokafka": version("aiokafka"),
    "asyncpg": version("asyncpg"),
    "rocksdict": version("rocksdict"),
}


def process(worker: "Worker") -> Mapping[str, Samples]:
    settings = worker.settings
    return {
        "heartbeat_worker_info": {
            "version": __version__,
            "app_id": settings.app_id,
            "directory": str(worker.directory.path),
        },
        "heartbeat_build_info": _VERSIONS,
        "heartbeat_ready": bool(worker.readiness()["ready"]),
        "heartbeat_live": bool(worker.liveness()["live"]),
        "heartbeat_loop_stall_seconds_max": worker.loop_monitor.longest(),
        "heartbeat_checkpoint_interval_seconds": settings.checkpoint_ms / 1000,
    }


def data_directory(worker: "Worker") -> Mapping[str, Samples]:
    """Of its own: where somebody has removed the directory, this figure alone is missing."""
    return {"heartbeat_data_free_bytes": shutil.disk_usage(worker.directory.path).free}


def records(worker: "Worker") -> Mapping[str, Samples]:
    counts = worker.job.counts
    return {
        f"heartbeat_{name}_total": counts[name]
        for name in ("records", "tombstones", "combined", "forwarded", "merged", "stale")
    }


def dead_letters(worker: "Worker") -> Mapping[str, Samples]:
    dead = worker.dead_letters.by_reason
    return {
        # All of them from the start: of a counter that appears, Prometheus cannot tell the
        # increase.
        "heartbeat_dead_letters_total": [((str(reason),), dead[reason]) for reason in Reason],
    }


def lag(worker: "Worker") -> Mapping[str, Samples]:
    lags, fetch_age = worker.lags(), worker.fetch_age_s()
    return {
        **({"heartbeat_fetch_age_seconds": fetch_age} if fetch_age is not None else {}),
        "heartbeat_lag_records": [
            ((tp.topic, str(tp.partition)), one.records) for tp, one in lags.items()
        ],
        "heartbeat_lag_seconds": [
            ((tp.topic, str(tp.partition)), one.seconds) for tp, one in lags.items()
        ],
    }


def rooms(worker: "Worker") -> Mapping[str, Samples]:
    job, schedule = worker.job, worker.job.schedule
    return {
        "heartbeat_rooms_pending": schedule.pending,
        "heartbeat_rooms_cooling": schedule.cooling,
        "heartbeat_rooms_waiting": schedule.waiting,
        "heartbeat_rooms_due": schedule.due(worker.clock.now_ms()),
        "heartbeat_rooms_in_flight": schedule.in_flight,
        "heartbeat_rooms_in_memory": sum(len(shard.rooms) for shard in job.shards.values()),
        "heartbeat_rooms_expired_total": job.expiry.rooms,
    }


def database(worker: "Worker") -> Mapping[str, Samples]:
    drain = worker.job.drain
    return {
        "heartbeat_rows_written_total": drain.rows_written,
        "heartbeat_rows_turned_away_total": worker.job.sink.rows_turned_away,
        "heartbeat_rows_refused_total": drain.rows_refused,
        "heartbeat_write_retries_total": [((kind,), n) for kind, n in drain.retries.items()],
        "heartbeat_database_available": drain.is_open,
        "heartbeat_upsert_duration_seconds": drain.upsert_seconds,
        "heartbeat_upsert_rows": drain.upsert_rows,
        "heartbeat_write_delay_seconds": drain.delay_seconds,
    }


def checkpoints(worker: "Worker") -> Mapping[str, Samples]:
    checkpointer, outbox, lanes = worker.checkpointer, worker.outbox, worker.lanes
    written = worker.producer.bytes_by_topic
    return {
        "heartbeat_checkpoints_total": checkpointer.completed,
        "heartbeat_checkpoint_failures_total": checkpointer.failed,
        "heartbeat_checkpoint_age_seconds": worker.engine.checkpoint_age_s,
        "heartbeat_checkpoint_duration_seconds": checkpointer.durations,
        "heartbeat_checkpoint_records_total": checkpointer.records,
        "heartbeat_checkpoint_bytes_total": sum(
            written[table.changelog] for job in worker.jobs.values() for table in job.tables
        ),
        "heartbeat_batches_held": checkpointer.held,
        "heartbeat_outbox_batches": outbox.in_flight,
        "heartbeat_outbox_retries_total": outbox.retries + lanes.retries,
    }


def partitions(worker: "Worker") -> Mapping[str, Samples]:
    engine = worker.engine
    return {
        "heartbeat_partitions_owned": worker.partitions_owned,
        "heartbeat_partitions": sum(job.tables[0].partitions or 0 for job in worker.jobs.values()),
        "heartbeat_rebalances_total": engine.rebalances,
        "heartbeat_rebalance_duration_seconds": engine.rebalance_seconds,
        "heartbeat_recovered_records_total": engine.recovered_records,
    }


def state(worker: "Worker") -> Mapping[str, Samples]:
    sizes = []
    for table in (table for job in worker.jobs.values() for table in job.tables):
        stores = table.store.partitions.values()
        sizes.append(((table.name,), sum(store.size_bytes() for store in stores)))
    return {"heartbeat_state_bytes": sizes}


def judged(worker: "Worker") -> Mapping[str, Samples]:
    outcomes: list[tuple[tuple[str, ...], float]] = []
    events: list[tuple[tuple[str, ...], float]] = []
    entries: list[tuple[tuple[str, ...], float]] = []
    for name, job in worker.jobs.items():
        if not isinstance(job, StreamJob):
            continue
        outcomes += [((name, outcome), job.counts[outcome]) for outcome in job.outcomes]
        events += [((name, kind), job.events[kind]) for kind in job.events]
        entries += [((name, "put"), job.entries_put), ((name, "expired"), job.entries_expired)]
    return {
        "heartbeat_judged_total": outcomes,
        "heartbeat_continuity_events_total": events,
        "heartbeat_remembered_total": entries,
    }


def layers(worker: "Worker") -> Mapping[str, Samples]:
    checks, hits, abstentions, seconds = [], [], [], []
    for name, job in worker.jobs.items():
        tallies = job.layers if isinstance(job, StreamJob) else {}
        for layer, tally in tallies.items():
            labels = (name, layer.value)
            checks.append((labels, tally.checks))
            hits.append((labels, tally.hits))
            abstentions.append((labels, tally.abstentions))
            each_ns = tally.timed_ns / tally.timed if tally.timed else 0.0
            seconds.append((labels, each_ns * tally.checks / 1e9))
    return {
        "heartbeat_layer_checks_total": checks,
        "heartbeat_layer_hits_total": hits,
        "heartbeat_layer_abstentions_total": abstentions,
        "heartbeat_layer_seconds_total": seconds,
    }


def tracking(worker: "Worker") -> Mapping[str, Samples]:
    job = cast("TrackingJob", worker.jobs["tracking"])
    return {"heartbeat_tracking_events_total": list(job.by_sdk.items())}


FROM_THE_START: tuple[Reading, ...] = (process, data_directory)
#: Those that need what a worker makes once it knows its topics.
ONCE_BUILT: tuple[Reading, ...] = (
    dead_letters,
    lag,
    checkpoints,
    partitions,
    state,
    judged,
    layers,
)
#: Those of one job alone, by its name.
OF_JOB: Mapping[str, tuple[Reading, ...]] = {
    "heartbeats": (records, rooms, database),
    "tracking": (tracking,),
}
