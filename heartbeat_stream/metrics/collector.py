"""The registry of a worker: readings made into Prometheus' metrics, in the words of the list."""

import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, cast

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from heartbeat_stream.complaints import Complaints
from heartbeat_stream.distribution import Distribution
from heartbeat_stream.metrics.catalogue import METRICS, MetricSpec
from heartbeat_stream.metrics.reading import (
    FROM_THE_START,
    OF_JOB,
    ONCE_BUILT,
    Labelled,
    Reading,
    Samples,
)

if TYPE_CHECKING:
    from heartbeat_stream.app import Worker

__all__ = ["worker_metrics"]

logger = logging.getLogger(__name__)


class WorkerCollector(Collector):
    """Reads a worker's figures when Prometheus asks. Never raises: a figure that cannot be had is
    left out, and said in the log."""

    def __init__(self, worker: "Worker") -> None:
        self._worker = worker
        self._complaints = Complaints(logger)

    def describe(self) -> Iterable[Metric]:
        return []  # asked when this is registered, long before the job exists

    def collect(self) -> Iterable[Metric]:
        readings = FROM_THE_START
        if self._worker.built:
            readings += ONCE_BUILT + sum(map(_of_job, self._worker.jobs), ())
        for reading in readings:
            yield from self._read(reading)

    def _read(self, reading: Reading) -> Iterator[Metric]:
        try:
            metrics = [family(METRICS[name], it) for name, it in reading(self._worker).items()]
        except Exception as exc:  # a defect in one figure must not hide the others
            self._complaints.warning("cannot read the metrics of %s: %r", reading.__name__, exc)
            return
        yield from metrics


def _of_job(name: str) -> tuple[Reading, ...]:
    return OF_JOB.get(name, ())


def family(spec: MetricSpec, samples: Samples) -> Metric:
    """A metric as the client library writes it. Samples without labels are one number."""
    if isinstance(samples, Distribution):
        return HistogramMetricFamily(
            spec.name, spec.meaning, buckets=samples.cumulative(), sum_value=samples.sum
        )
    if spec.kind == "info":
        value = cast("dict[str, str]", samples)
        return InfoMetricFamily(spec.name.removesuffix("_info"), spec.meaning, value=value)
    kind = CounterMetricFamily if spec.kind == "counter" else GaugeMetricFamily
    made = kind(spec.name.removesuffix("_total"), spec.meaning, labels=spec.labels)
    labelled = [((), samples)] if isinstance(samples, (int, float)) else cast("Labelled", samples)
    for labels, number in labelled:
        made.add_metric(labels, number)
    return made


def worker_metrics(worker: "Worker") -> CollectorRegistry:
    """A registry with a worker's figures and its process'."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    registry.register(WorkerCollector(worker))
    return registry
