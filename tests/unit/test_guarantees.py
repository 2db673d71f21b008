"""Every test that docs/guarantees.md names exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guarantees.md").read_text("utf-8")
NAMED = sorted(set(re.findall(r"`([\w/]+\.py)::(\w+)`", PAGE)))


def test_the_page_names_tests() -> None:
    assert len(NAMED) > 40
    assert PAGE.count("::") == len(re.findall(r"`([\w/]+\.py)::(\w+)`", PAGE))


@pytest.mark.parametrize(("file", "test"), NAMED, ids=[test for _, test in NAMED])
def test_it_exists(file: str, test: str) -> None:
    path = ROOT / "tests" / file
    assert path.is_file(), f"docs/guarantees.md names tests/{file}"
    source = path.read_text("utf-8")
    assert re.search(rf"^(async )?def {test}\(", source, re.MULTILINE), f"{test} is not in {file}"


@pytest.mark.parametrize("file", sorted(set(re.findall(r"`([\w./]+\.py)`", PAGE))))
def test_modules_that_it_names_exist(file: str) -> None:
    places = [ROOT / "heartbeat_stream" / "streaming" / file, ROOT / file]
    assert any(place.is_file() for place in places), file
