"""What a run has measured, for people, for programs, and as a picture."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from heartbeat_stream import __version__
from heartbeat_stream.bench import figures
from heartbeat_stream.bench.chart import chart
from heartbeat_stream.bench.histogram import histogram, quantile
from heartbeat_stream.bench.market import MarketThroughput
from heartbeat_stream.bench.printing import Printing
from heartbeat_stream.bench.runs import Run, Throughput, median, median_cpu_us
from heartbeat_stream.bench.suite import Results

__all__ = ["as_json", "as_svg", "as_text", "machine"]

_MIB = 1024 * 1024


def machine() -> dict[str, object]:
    """On what this runs, and when."""
    return {
        "date": time.strftime("%Y-%m-%d %H:%M %Z"),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 1024**3),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "heartbeat_stream": __version__,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def as_text(results: Results) -> str:
    """Every measurement, and the table of the goals."""
    facts = machine()
    lines = [
        f"{facts['date']}: {facts['processor']}, {facts['cores']} cores, "
        f"{facts['memory_gib']} GiB, {facts['system']}, Python {facts['python']}",
        "",
    ]
    for one in results.throughput:
        lines += [*_throughput(one), ""]
    for market in results.market:
        lines += [*_market(market), ""]
    for printing in results.printing:
        lines += [_printing(printing), ""]
    for test in results.latency:
        seen = test.latencies
        lines += [
            f"latency on {test.broker}: {test.sent:,} heartbeats, {test.sent_per_second:,.0f}/s, "
            f"{test.test.rooms:,} rooms, window {test.test.rule.window_ms} ms, cooldown "
            f"{test.test.rule.cooldown_ms} ms; the worker took {test.worker_cpu_share:.0%} of a "
            "core",
            f"  {len(seen.values):,} writes judged ({seen.by_window:,} due by their window), "
            f"{seen.first:,} first ones not, {len(seen.missing):,} rooms due and not written, "
            f"{test.inferred:,} acknowledgements taken from the database",
            "  " + ", ".join(f"p{100 * share:g} {ms:.0f} ms" for share, ms in _marks(seen.values)),
            "",
        ]
    for state in results.state:
        lines.append(
            f"{state.rooms:,} rooms on {state.broker}: {state.idle_rss / _MIB:.0f} MiB idle, "
            f"{state.pending_rss / _MIB:.0f} MiB with all pending"
        )
        lines += [
            f"  recovery, {one.what}: ready {one.since_start_s:.1f} s after the start, "
            f"{one.since_assignment_s:.1f} s after the assignment, {one.cpu_seconds:.1f} s of CPU "
            f"time, {one.changelog_records:,} changelog records"
            for one in state.recoveries
        ]
        lines.append("")
    for way, phases in results.upsert.items():
        lines.append(
            f"upsert, {way}: "
            + ", ".join(
                f"{phase} {measure.rows_per_second:,.0f} rows/s ({measure.cpu_ms_per_batch:.1f} ms "
                "of our CPU time a batch)"
                for phase, measure in phases.items()
            )
        )
    lines += ["", figures.table(results.figures())]
    lines += [f"FAILED, and so not in the table: {failure}" for failure in results.failures]
    return "\n".join(lines)


def _throughput(one: Throughput) -> Iterator[str]:
    load = one.scenario.load
    yield (
        f"{one.scenario.name} on {one.broker}: {load.messages:,} heartbeats of "
        f"{one.bytes_per_value:.0f} bytes, {load.rooms:,} rooms, {one.scenario.partitions} "
        "partitions; rows and state were right"
    )
    yield _runs("ceiling", one.ceiling)
    yield _runs("worker", one.worker)
    for name, run in one.peers.items():
        yield _runs(name, [run])
    stall = max(run.longest_stall_s for run in one.worker)
    peak = max(run.peak_rss for run in one.worker) / _MIB
    rows = ", ".join(f"{run.rows_written:,}" for run in one.worker)
    sustained = "" if one.sustained is None else f", sustained {one.sustained:,.0f}/s"
    yield (
        f"  ratio {one.ratio:.2f}, by CPU time {one.cpu_ratio:.2f}{sustained}; rows {rows}; "
        f"{peak:.0f} MiB at most; longest stall {1000 * stall:.0f} ms"
    )


def _market(one: MarketThroughput) -> Iterator[str]:
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(one.duplicates.items()))
    yield (
        f"{one.scenario.name} on {one.broker}: {one.scenario.messages:,} messages of "
        f"{one.bytes_per_value:.0f} bytes, {one.scenario.partitions} partitions, duplicates: "
        f"{kinds}; 0 false, 0 missed, old ones recognised after a kill"
    )
    yield _runs("ceiling", one.ceiling)
    yield _runs("worker", one.worker)
    stall = max(run.longest_stall_s for run in one.worker)
    peak = max(run.peak_rss for run in one.worker) / _MIB
    yield (
        f"  ratio {one.ratio:.2f}, by CPU time {one.cpu_ratio:.2f}; {peak:.0f} MiB at most; "
        f"longest stall {1000 * stall:.0f} ms"
    )


def _printing(one: Printing) -> str:
    marks = ", ".join(f"p{100 * share:g} {ms:.0f} ms" for share, ms in _marks(one.latencies_ms))
    return (
        f"printing on {one.broker}: {one.sent:,} texts, {one.test.per_second:,}/s, of which "
        f"{one.suppressed:,} were suppressed; arrival to print {marks}; the worker took "
        f"{one.worker_cpu_share:.0%} of a core"
    )


def _runs(title: str, runs: Sequence[Run]) -> str:
    rates = ", ".join(f"{run.per_second:,.0f}" for run in runs)
    return (
        f"  {title:24} {median(runs):>9,.0f}/s ({rates}), {median_cpu_us(runs):.2f} us of CPU "
        "time each"
    )


def _marks(values: Sequence[float]) -> list[tuple[float, float]]:
    if not values:
        return []
    return [(share, quantile(values, share)) for share in (0.5, 0.99, 1.0)]


def as_json(results: Results) -> dict[str, object]:
    """Everything, with the figures of the goals first."""
    return {
        "machine": machine(),
        "figures": figures.as_json(results.figures()),
        "throughput": [
            {
                **asdict(one),
                "ratio": one.ratio,
                "cpu_ratio": one.cpu_ratio,
                "sustained_per_second": one.sustained,
            }
            for one in results.throughput
        ],
        "market": [
            {**asdict(one), "ratio": one.ratio, "cpu_ratio": one.cpu_ratio}
            for one in results.market
        ],
        "printing": [
            {
                "broker": one.broker,
                "test": asdict(one.test),
                "sent": one.sent,
                "suppressed": one.suppressed,
                "worker_cpu_share": one.worker_cpu_share,
                "quantiles_ms": {str(share): ms for share, ms in _marks(one.latencies_ms)},
            }
            for one in results.printing
        ],
        "latency": [
            {
                "broker": one.broker,
                "test": {**asdict(one.test), "rule": one.test.rule._asdict()},
                "sent": one.sent,
                "sent_per_second": one.sent_per_second,
                "worker_cpu_share": one.worker_cpu_share,
                "longest_stall_s": one.stall_s,
                "longest_stall_with_start": one.stall_with_start,
                "judged": len(one.latencies.values),
                "first": one.latencies.first,
                "by_window": one.latencies.by_window,
                "missing": len(one.latencies.missing),
                "inferred": one.inferred,
                "quantiles_ms": {str(share): ms for share, ms in _marks(one.latencies.values)},
                "histogram_ms": [bin_._asdict() for bin_ in histogram(one.latencies.values)],
            }
            for one in results.latency
        ],
        "state": [{**asdict(one), "bytes_per_room": one.bytes_per_room} for one in results.state],
        "starts": results.starts,
        "failures": results.failures,
        "upsert": {
            way: {phase: measure._asdict() for phase, measure in phases.items()}
            for way, phases in results.upsert.items()
        },
    }


def as_svg(results: Results) -> str:
    """Throughput against rooms, and the latencies."""
    series: dict[str, list[tuple[float, float]]] = {}
    for one in results.throughput:
        if one.scenario.name in ("keyed", "rooms-few", "rooms-many"):
            rooms = float(one.scenario.load.rooms)
            series.setdefault(f"worker, {one.broker}", []).append((rooms, median(one.worker)))
            series.setdefault(f"ceiling, {one.broker}", []).append((rooms, median(one.ceiling)))
    values = [ms for one in results.latency for ms in one.latencies.values]
    return chart(series, histogram(values), _marks(values)[:2])
