"""The Chinese README says what the English one says: the same commands, settings, tables, links."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENGLISH = (ROOT / "README.md").read_text(encoding="utf-8")
CHINESE = (ROOT / "README.zh-CN.md").read_text(encoding="utf-8")


def blocks(text: str) -> list[str]:
    """What stands between the fences, comments included."""
    return re.findall(r"^```.*?^```$", text, re.MULTILINE | re.DOTALL)


def prose(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def headings(text: str) -> list[int]:
    """The depth of each heading."""
    return [len(marks) for marks in re.findall(r"^(#+) ", prose(text), re.MULTILINE)]


def tables(text: str) -> list[list[str]]:
    """Of each row of each table what must be the same in any language: names and defaults."""
    rows = re.findall(r"^\|(.*)\|$", text, re.MULTILINE)
    return [
        [code for cell in row.split(" | ")[:2] for code in re.findall("`.+?`", cell)]
        for row in rows
        if not set(row) <= set("-| ")
    ]


def named(text: str) -> set[str]:
    return set(re.findall(r"`([^`\n]+)`", prose(text)))


def links(text: str) -> set[str]:
    return set(re.findall(r"\]\(([^)]+)\)", text)) - {"README.md", "README.zh-CN.md"}


def pictures(text: str) -> list[str]:
    return re.findall(r'src(?:set)?="([^"]+)"', text)


def items(text: str) -> dict[str, int]:
    """How many numbered and how many plain items there are."""
    found = re.findall(r"^(-|\d+\.) ", prose(text), re.MULTILINE)
    return {"plain": found.count("-"), "numbered": len(found) - found.count("-")}


def numbers(text: str) -> list[str]:
    """The figures of the promises, which must not differ."""
    promises = re.findall(r"^\d+\. (.*?)(?=^\d+\. |^#)", text, re.MULTILINE | re.DOTALL)
    return [" ".join(re.findall(r"\d+", one.replace("100,000", "10"))) for one in promises]


@pytest.mark.parametrize("what", [blocks, headings, tables, links, pictures, items, numbers])
def test_both_have_the_same(what: object) -> None:
    assert callable(what)
    english, chinese = what(ENGLISH), what(CHINESE)
    assert english
    assert chinese == english


def test_both_name_the_same_things() -> None:
    english, chinese = named(ENGLISH), named(CHINESE)
    assert english <= chinese
    # What an English comment in a block says is said around it here.
    assert chinese - english <= set(re.findall(r"[\w.-]+", "".join(blocks(ENGLISH))))


def test_each_leads_to_the_other() -> None:
    assert "(README.zh-CN.md)" in "\n".join(ENGLISH.splitlines()[:6])
    assert "(README.md)" in "\n".join(CHINESE.splitlines()[:6])


def test_emphasis_is_seen_as_such() -> None:
    """After a full stop within asterisks they would be shown, where a character follows."""
    assert not re.search(r"[。！？，；：）]\*\*\w", CHINESE)


def test_lines_are_not_wrapped_within_sentences() -> None:
    """A line break is shown as a space, which Chinese text has none of."""
    assert not re.search(r"[\u4e00-\u9fff，。；：、]\n[\u4e00-\u9fff]", CHINESE)
