"""The upgrade notes name what there is."""

from __future__ import annotations

import re
from pathlib import Path

from heartbeat_stream.commands import load_commands
from heartbeat_stream.settings import BY_VARIABLE
from heartbeat_stream.streaming import store

ROOT = Path(__file__).parents[2]
NOTES = (ROOT / "docs" / "upgrade.md").read_text(encoding="utf-8")


def test_the_format_of_local_state_is_the_one_that_is_written() -> None:
    assert re.findall(r"now format (\d+)", NOTES) == [str(store._FORMAT)]


def test_settings_commands_and_alarms_exist() -> None:
    assert set(re.findall(r"HEARTBEAT_[A-Z_]+[A-Z]", NOTES)) <= BY_VARIABLE.keys()
    commands = {command.NAME for command in load_commands()}
    assert set(re.findall(r"`heartbeat-stream (\w+)", NOTES)) <= commands
    alerts = (ROOT / "observability" / "alerts.yaml").read_text(encoding="utf-8")
    alarms = re.findall(r"`(HeartbeatStream\w+)`", NOTES)
    assert alarms
    assert all(f"alert: {alarm}\n" in alerts for alarm in alarms)


def test_metrics_exist() -> None:
    catalogue = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    metrics = re.findall(r"`(heartbeat_[a-z_]+)`", NOTES)
    assert metrics
    assert all(f"`{metric}`" in catalogue for metric in metrics)


def test_links_lead_somewhere() -> None:
    for link in re.findall(r"\]\(([^)#]+)", NOTES):
        assert (ROOT / "docs" / link).exists(), link
