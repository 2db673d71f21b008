"""Every metric of a worker: its name, and what it means."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)

from heartbeat_stream import __version__

if TYPE_CHECKING:
    from heartbeat_stream.app import Worker

__all__ = ["worker_metrics"]

#: Counters of the job, by the name under which it counts.
_COUNTERS = {
    "records": ("heartbeat_records", "Records read from the source topic."),
    "tombstones": ("heartbeat_tombstones", "Records with a null value, skipped."),
    "combined": ("heartbeat_combined", "Heartbeats that a newer one of the same batch replaced."),
    "forwarded": ("heartbeat_forwarded", "Heartbeats forwarded to the repartition topic."),
    "merged": ("heartbeat_merged", "Heartbeats that became the newest of their room."),
    "stale": ("heartbeat_stale", "Heartbeats that were not newer than the newest of their room."),
}


class WorkerCollector:
    """Reads the figures when they are asked for: counting costs the job nothing."""

    def __init__(self, worker: "Worker") -> None:
        self._worker = worker

    def collect(self) -> Iterable[Metric]:
        worker = self._worker
        job, engine, checkpointer = worker.job, worker.engine, worker.checkpointer
        yield InfoMetricFamily(
            "heartbeat_worker",
            "Which worker this is.",
            value={
                "version": __version__,
                "app_id": worker.settings.app_id,
                "directory": str(worker.directory.path),
            },
        )
        for name, (metric, meaning) in _COUNTERS.items():
            yield CounterMetricFamily(metric, meaning, value=job.counts[name])
        yield CounterMetricFamily(
            "heartbeat_rows_written",
            "Rows that the database has acknowledged.",
            value=job.drain.rows_written,
        )
        yield CounterMetricFamily(
            "heartbeat_rooms_expired",
            "Rooms that were silent too long and left the tables.",
            value=job.expiry.rooms,
        )
        retries = CounterMetricFamily(
            "heartbeat_write_retries", "Failed writes, tried again, by kind.", labels=["kind"]
        )
        for kind, count in job.drain.retries.items():
            retries.add_metric([kind], count)
        yield retries
        dead = CounterMetricFamily(
            "heartbeat_dead_letters", "Dead letters by reason.", labels=["reason"]
        )
        for reason, count in worker.dead_letters.by_reason.items():
            dead.add_metric([str(reason)], count)
        yield dead
        gauges = {
            "heartbeat_rooms_pending": ("Rooms with something to write.", job.schedule.pending),
            "heartbeat_rooms_cooling": (
                "Rooms with something to write whose cooldown is not over.",
                job.schedule.cooling,
            ),
            "heartbeat_rooms_waiting": ("Rooms that wait for their window.", job.schedule.waiting),
            "heartbeat_rooms_in_flight": ("Rooms being written.", job.schedule.in_flight),
            "heartbeat_rooms_in_memory": (
                "Rooms held in memory.",
                sum(len(shard.rooms) for shard in job.shards.values()),
            ),
            "heartbeat_partitions_owned": ("Partitions owned.", len(engine.owned[job.name])),
            "heartbeat_checkpoint_duration_seconds": (
                "Duration of the last checkpoint.",
                checkpointer.last_duration_s,
            ),
            "heartbeat_checkpoint_rows": (
                "Changelog records of the last checkpoint.",
                checkpointer.last_rows,
            ),
            "heartbeat_loop_stall_seconds_max": (
                "Longest time within the last minute for which the event loop was held up.",
                worker.loop_monitor.longest(),
            ),
        }
        for metric, (meaning, value) in gauges.items():
            yield GaugeMetricFamily(metric, meaning, value=value)
        yield CounterMetricFamily(
            "heartbeat_checkpoints", "Checkpoints completed.", value=checkpointer.completed
        )
        yield CounterMetricFamily(
            "heartbeat_rebalances", "Rebalances seen.", value=engine.rebalances
        )


def worker_metrics(worker: "Worker") -> CollectorRegistry:
    """A registry with a worker's figures and its process'."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)

    class Deferred(WorkerCollector):
        def describe(self) -> Iterable[Metric]:
            return []  # the job does not exist yet when this is registered

    registry.register(Deferred(worker))
    return registry
