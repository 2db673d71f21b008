"""What is installed is bounded in pyproject.toml, and locked by version and hash."""

from __future__ import annotations

import re
import tomllib
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LOCKS = sorted(path.name for path in ROOT.glob("requirements*.lock"))
PINNED = re.compile(r"^([a-z0-9._-]+)==\S+", re.MULTILINE)


def requirements() -> list[str]:
    return [
        *PROJECT["dependencies"],
        *chain.from_iterable(PROJECT["optional-dependencies"].values()),
    ]


def entries(lock: str) -> list[str]:
    """What a lock file says of each package, hashes included."""
    text = (ROOT / lock).read_text(encoding="utf-8")
    lines = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    return re.split(r"\n(?=\S)", lines.strip())


@pytest.mark.parametrize("requirement", requirements())
def test_a_dependency_is_bounded_above(requirement: str) -> None:
    assert re.search(r"==|<", requirement.partition(";")[0])


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_has_a_version_and_hashes_for_everything(lock: str) -> None:
    assert entries(lock)
    for entry in entries(lock):
        assert PINNED.match(entry), entry
        assert "--hash=sha256:" in entry, entry


def test_the_runtime_lock_holds_what_the_project_needs() -> None:
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    needed = {re.split(r"[<>=]", one)[0].lower() for one in PROJECT["dependencies"]}
    assert needed <= set(PINNED.findall(text))


def test_the_bill_of_materials_and_the_audit_look_at_that_lock() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipes = dict(re.findall(r"^(sbom|audit):.*\n((?:\t.*\n)+)", makefile, re.MULTILINE))
    assert recipes.keys() == {"sbom", "audit"}
    for recipe in recipes.values():
        assert re.search(r"requirements\.lock\b", recipe)
    assert "--strict" in recipes["audit"]


@pytest.mark.parametrize("file", ["Dockerfile", "Makefile"])
def test_installations_ask_for_hashes(file: str) -> None:
    text = (ROOT / file).read_text(encoding="utf-8").replace("\\\n", " ")
    installs = [
        line for line in text.splitlines() if re.search(r"install\b.*-r requirements", line)
    ]
    assert installs
    for line in installs:
        assert "--require-hashes" in line, line
