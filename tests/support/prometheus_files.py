"""What observability/ asks of Prometheus, as Prometheus gets it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

__all__ = ["ALERTS", "ALERT_TESTS", "DASHBOARD", "Query", "alert_rules", "panels", "queries"]

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "observability" / "alerts.yaml"
ALERT_TESTS = ROOT / "observability" / "alerts_test.yaml"
DASHBOARD = ROOT / "observability" / "grafana" / "dashboards" / "heartbeat-stream.json"

#: What Grafana puts in place of its variables.
VARIABLES = {"$job": ".*", "$namespace": ".*", "$__rate_interval": "1m"}


class Query(NamedTuple):
    """An expression, and where it stands."""

    where: str
    expression: str


def alert_rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(ALERTS.read_text("utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    return found


def queries() -> Iterator[Query]:
    """Every expression of the dashboard and of the alerts."""
    for panel in panels():
        for target in panel.get("targets", []):
            expression = target["expr"]
            for variable, value in VARIABLES.items():
                expression = expression.replace(variable, value)
            assert not re.search(r"\$\w", expression), expression
            yield Query(f"panel {panel['title']!r}", expression)
    for rule in alert_rules():
        yield Query(f"alert {rule['alert']}", rule["expr"])
