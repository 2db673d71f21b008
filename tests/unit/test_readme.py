"""What the README says is so: defaults, names, links and commands."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from heartbeat_stream.commands import load_commands
from heartbeat_stream.core.fields import HOTEL_ID_MAX, STATUS_MAX, STATUS_MIN, TEXT_MAX
from heartbeat_stream.settings import BY_VARIABLE, Settings
from heartbeat_stream.sinks.table import Table, ddl

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def settings_rows() -> list[tuple[str, str]]:
    """Each variable of the settings' table with its default."""
    pairs: list[tuple[str, str]] = []
    for line in README.splitlines():
        if line.startswith("| `HEARTBEAT_"):
            _, variables, defaults, *_ = line.split("|")
            pairs += zip(
                re.findall("`(.+?)`", variables), re.findall("`(.+?)`", defaults), strict=True
            )
    return pairs


@pytest.mark.parametrize(("variable", "default"), settings_rows())
def test_a_setting_has_the_default_that_is_named(variable: str, default: str) -> None:
    field = BY_VARIABLE[variable].field
    assert default.removeprefix("./") == Settings().shown(field)


def test_every_setting_that_is_named_exists() -> None:
    assert len(settings_rows()) > 10
    assert set(re.findall(r"HEARTBEAT_\w+", README)) <= BY_VARIABLE.keys()


def test_every_command_that_is_named_exists() -> None:
    named = set(re.findall(r"^heartbeat-stream (\w+)", README, re.MULTILINE))
    assert {"stack", "init", "check", "worker", "simulate"} <= named
    assert named <= {command.NAME for command in load_commands()}


def test_every_target_of_make_that_is_named_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z-]+)", README))
    assert {"demo", "test", "setup"} <= named <= targets


def test_every_path_that_is_named_exists() -> None:
    links = re.findall(r"\]\(([^)]+)\)", README)
    links += re.findall(r'(?:src|srcset)="([^"]+)"', README)
    paths = re.findall(r"`([\w./-]+/)`", README)
    assert "docs/architecture.md" in links
    assert "heartbeat_stream/core/" in paths
    for path in (*links, *paths):
        places = (ROOT, ROOT / "heartbeat_stream")
        assert any((place / path).exists() for place in places), path


def test_the_table_is_the_one_that_is_made() -> None:
    (shown,) = re.findall(r"```sql\n(.*?);\n```", README, re.DOTALL)
    made = ddl(Table.parse(Settings().table)).replace("IF NOT EXISTS ", "").replace('"', "")
    assert shown.split() == made.split()


def test_the_limits_of_fields_are_those_of_the_core() -> None:
    for row in (
        f"| `hotel_id` | 0 to {HOTEL_ID_MAX},",
        f"| `room_id` | a string of 1 to {TEXT_MAX} characters",
        f"| `device_id` | a string of at most {TEXT_MAX} characters",
        f"| `status` | {STATUS_MIN} to {STATUS_MAX},",
    ):
        assert row in README


def test_the_picture_can_be_drawn_and_is_described() -> None:
    svg = ElementTree.parse(ROOT / "docs" / "data-flow.svg").getroot()
    texts = "".join(svg.itertext())
    for name in ("ingest", "absorb", "due index", "sink", "prefers-color-scheme: dark"):
        assert name in texts
    assert svg.find("{http://www.w3.org/2000/svg}desc") is not None
