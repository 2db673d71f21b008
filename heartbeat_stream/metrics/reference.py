"""docs/metrics.md, made from the list of metrics: ``make reference``."""

import sys
from pathlib import Path

from heartbeat_stream.metrics.catalogue import SECTIONS, Section

__all__ = ["markdown"]

_HEAD = """\
# Metrics

<!-- Made from heartbeat_stream/metrics/catalogue.py by `make reference`. -->

`/metrics` of every worker, in Prometheus' text format. Counters begin at 0 with each start of a
worker; histograms have the usual `_bucket`, `_sum` and `_count`. No label ever holds a room, a
hotel or a device.

What the alerts make of these figures stands in the [runbook](runbook.md), and the dashboard shows
them (`observability/grafana/dashboards/heartbeat-stream.json`).
"""


def markdown() -> str:
    """The whole page."""
    return "\n".join([_HEAD, *map(_section, SECTIONS)])


def _section(section: Section) -> str:
    lines = [f"## {section.title}", ""]
    if section.about:
        lines += [section.about, ""]
    lines += [
        "| metric | type | labels | meaning | when it moves |",
        "| --- | --- | --- | --- | --- |",
    ]
    for metric in section.metrics:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(
            f"| `{metric.name}` | {metric.kind} | {labels} | {metric.meaning} | {metric.action} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    (root / "docs" / "metrics.md").write_text(markdown(), encoding="utf-8")
