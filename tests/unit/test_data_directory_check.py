"""What `check` says of a data directory, without a worker."""

from __future__ import annotations

from pathlib import Path

import pytest

from heartbeat_stream.checks.data_directory import check_data_directory
from heartbeat_stream.checks.finding import Level
from heartbeat_stream.settings import Settings


@pytest.mark.parametrize("blocked", ["app", "app/worker-0", "app/worker-0/lock"])
def test_a_data_directory_with_something_in_the_way(tmp_path: Path, blocked: str) -> None:
    there = tmp_path / blocked
    there.parent.mkdir(parents=True, exist_ok=True)
    if there.name == "lock":
        there.mkdir()
    else:
        there.write_text("")
    settings = Settings(app_id="app", data_dir=tmp_path)
    [finding] = check_data_directory(settings)
    assert finding.level is Level.FAIL
    assert str(there) in finding.text
