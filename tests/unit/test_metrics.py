"""The list of metrics: its conventions, its page, and that what others ask for is in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from heartbeat_stream.distribution import Distribution
from heartbeat_stream.metrics import reference
from heartbeat_stream.metrics.catalogue import METRICS, SECTIONS, MetricSpec
from heartbeat_stream.metrics.collector import family
from heartbeat_stream.metrics.reading import Samples
from tests.support.prometheus_files import ALERT_TESTS, Query, alert_rules, panels, queries

ROOT = Path(__file__).parents[2]
SPECS = list(METRICS.values())
NAME = re.compile(r"\bheartbeat_[a-z_]+")
#: Labels that say what a worker is, once for each, and not what happens.
LABELS_OF_A_WORKER = {"info"}
#: Others, all with a bounded number of values, none of which is a room, a hotel or a device.
BOUNDED_LABELS = {"reason", "kind", "topic", "partition", "table"} | {
    "worker_job",
    "outcome",
    "layer",
    "what",
    "project",
    "lib",
    "policy",
    "verdict",
}


# --- the list


def test_a_name_stands_once() -> None:
    assert len(METRICS) == sum(len(section.metrics) for section in SECTIONS)


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_the_conventions_are_kept(spec: MetricSpec) -> None:
    assert re.fullmatch(r"heartbeat(_[a-z]+)+", spec.name)
    assert spec.name.endswith("_total") == (spec.kind == "counter")
    assert spec.name.endswith("_info") == (spec.kind == "info")
    assert not re.search(r"_(ms|millis|minutes|kb|mb|percent)(_|$)", spec.name), "base units"
    assert spec.meaning.endswith(".")
    assert spec.action.endswith(".")
    if spec.kind not in LABELS_OF_A_WORKER:
        assert set(spec.labels) <= BOUNDED_LABELS


def test_the_page_is_up_to_date() -> None:
    """`make reference` mends it."""
    assert (ROOT / "docs" / "metrics.md").read_text("utf-8") == reference.markdown()


# --- what asks for metrics


def base_name(name: str) -> str:
    return name if name in METRICS else re.sub(r"_(bucket|sum|count)$", "", name)


@pytest.mark.parametrize("query", list(queries()), ids=lambda query: query.where)
def test_a_query_asks_for_what_is_in_the_list(query: Query) -> None:
    names = NAME.findall(query.expression)
    assert {base_name(name) for name in names} <= set(METRICS)
    for name in names:
        if name != base_name(name):
            assert METRICS[base_name(name)].kind == "histogram"
    for metric, selector in re.findall(r"(heartbeat_[a-z_]+){([^}]*)}", query.expression):
        labels = set(re.findall(r'(\w+)\s*[=!]~?"', selector)) - {"job", "namespace"}
        assert labels <= set(METRICS[base_name(metric)].labels), metric


def test_every_metric_is_shown_or_watched() -> None:
    """What nobody looks at need not be counted."""
    asked = {base_name(name) for query in queries() for name in NAME.findall(query.expression)}
    assert set(METRICS) == asked


def test_every_alert_has_tests_and_a_section_in_the_runbook() -> None:
    runbook = (ROOT / "docs" / "runbook.md").read_text("utf-8")
    headings = re.findall(r"^### (\w+)$", runbook, re.MULTILINE)
    rules = alert_rules()
    assert headings == [rule["alert"] for rule in rules]
    tested = yaml.safe_load(ALERT_TESTS.read_text("utf-8"))["tests"]
    for rule in rules:
        name = rule["alert"]
        assert rule["annotations"]["runbook_url"] == f"docs/runbook.md#{name.lower()}"
        assert rule["labels"]["severity"] in ("critical", "warning")
        cases = [
            bool(case["exp_alerts"])
            for test in tested
            for case in test["alert_rule_test"]
            if case["alertname"] == name
        ]
        assert sorted(cases) == [False, True], name


def test_the_runbook_says_three_things_about_every_alert() -> None:
    runbook = (ROOT / "docs" / "runbook.md").read_text("utf-8")
    for section in re.split(r"^### ", runbook, flags=re.MULTILINE)[1:]:
        for what in ("**Means.**", "**See.**", "**Do.**"):
            assert section.count(what) == 1, section.splitlines()[0]
    for name in NAME.findall(runbook):
        assert base_name(name) in METRICS, name


def test_panels_have_a_description_and_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        grid = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(grid["x"], grid["x"] + grid["w"])
            for y in range(grid["y"], grid["y"] + grid["h"])
        }
        assert not cells & taken, panel["title"]
        assert grid["x"] + grid["w"] <= 24
        taken |= cells
        assert panel["type"] == "row" or panel["description"].endswith("."), panel["title"]
    assert len({panel["id"] for panel in panels()}) == len(panels())


# --- how a figure is written


def exposed(spec: MetricSpec, samples: Samples) -> list[tuple[str, dict[str, str], float]]:
    class One(Collector):
        def collect(self) -> list[Metric]:
            return [family(spec, samples)]

    registry = CollectorRegistry()
    registry.register(One())
    return [
        (sample.name, sample.labels, sample.value)
        for found in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in found.samples
    ]


def test_numbers_and_labelled_numbers() -> None:
    assert exposed(METRICS["heartbeat_records_total"], 7) == [("heartbeat_records_total", {}, 7)]
    assert exposed(METRICS["heartbeat_ready"], True) == [("heartbeat_ready", {}, 1)]
    samples = [(("a", "0"), 3.0), (("a", "1"), 4.0)]
    assert exposed(METRICS["heartbeat_lag_records"], samples) == [
        ("heartbeat_lag_records", {"topic": "a", "partition": "0"}, 3),
        ("heartbeat_lag_records", {"topic": "a", "partition": "1"}, 4),
    ]


def test_a_distribution_is_a_histogram() -> None:
    distribution = Distribution((0.1, 1.0, 10.0))
    for value in (0.05, 0.1, 0.5, 10.0, 99.0):
        distribution.observe(value)
    name = "heartbeat_upsert_duration_seconds"
    assert exposed(METRICS[name], distribution) == [
        (f"{name}_bucket", {"le": "0.1"}, 2),
        (f"{name}_bucket", {"le": "1.0"}, 3),
        (f"{name}_bucket", {"le": "10.0"}, 4),
        (f"{name}_bucket", {"le": "+Inf"}, 5),
        (f"{name}_count", {}, 5),
        (f"{name}_sum", {}, pytest.approx(109.65)),
    ]
