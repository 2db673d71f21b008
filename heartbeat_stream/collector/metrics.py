"""The collector's figures in Prometheus' form, in the words of the list of metrics."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from heartbeat_stream.metrics.catalogue import METRICS
from heartbeat_stream.metrics.collector import family
from heartbeat_stream.metrics.reading import Samples

if TYPE_CHECKING:
    from heartbeat_stream.collector.service import Service

__all__ = ["collector_metrics", "samples_of"]


def samples_of(service: "Service") -> dict[str, Samples]:
    """Every figure by the name of its metric."""
    figures, policy = service.figures, service.settings.tracking_policy
    return {
        "heartbeat_collect_reports_total": [
            ((outcome,), count) for outcome, count in figures.reports.items()
        ],
        "heartbeat_collect_events_total": [
            ((project, lib, policy, verdict), count)
            for (project, lib, verdict), count in figures.events.items()
        ],
        "heartbeat_collect_bad_total": [((reason,), n) for reason, n in figures.bad.items()],
        "heartbeat_collect_drained_total": figures.drained,
        "heartbeat_collect_request_duration_seconds": figures.request_seconds,
        "heartbeat_collect_store_failures_total": service.judge.failures if service.judge else 0,
        "heartbeat_collect_spool_bytes": service.spool.size,
        "heartbeat_collect_spool_bytes_max": service.settings.collect_spool_mb * 1024 * 1024,
        "heartbeat_collect_ready": bool(service.readiness()["ready"]),
    }


class _Figures(Collector):
    def __init__(self, service: "Service") -> None:
        self._service = service

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterable[Metric]:
        return [family(METRICS[name], it) for name, it in samples_of(self._service).items()]


def collector_metrics(service: "Service") -> CollectorRegistry:
    """A registry with a collector's figures and its process'."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    registry.register(_Figures(service))
    return registry
