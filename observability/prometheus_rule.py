"""Prints the PrometheusRule made of alerts.yaml, for the Prometheus Operator: `make rules`."""

from __future__ import annotations

import sys
from pathlib import Path

import yaml

ALERTS = Path(__file__).with_name("alerts.yaml")


def main() -> None:
    rules = yaml.safe_load(ALERTS.read_text("utf-8"))
    manifest = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "heartbeat-stream"},
        "spec": {"groups": rules["groups"]},
    }
    sys.stdout.write("# Made from observability/alerts.yaml by `make rules`.\n")
    yaml.safe_dump(manifest, sys.stdout, sort_keys=False, allow_unicode=True, width=100)


if __name__ == "__main__":
    main()
