"""The files of the page: what they may not hold, and that they are in the wheel."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from heartbeat_stream.web import page
from tests.support.manifests import ROOT

FOLDER = Path(page.__file__).parent
FILES = sorted(path for path in FOLDER.iterdir() if path.suffix in {".html", ".css", ".js", ".svg"})
TEXTS = {path.name: path.read_text("utf-8") for path in FILES}


def test_nothing_is_loaded_from_elsewhere_and_nothing_stands_inline() -> None:
    assert {"index.html", "sign-in.html", "style.css", "main.js", "icon.svg"} <= TEXTS.keys()
    for name, text in TEXTS.items():
        for address in re.findall(r"(?:https?:)?//[\w.-]+\.\w+", text):
            assert address == "http://www.w3.org", (name, address)
        if name.endswith(".html"):
            assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", text), name
        if name.endswith(".js"):
            assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", text)
        assert "@import" not in text
        assert "url(" not in text


def test_every_file_that_is_named_is_there() -> None:
    for name, text in TEXTS.items():
        for file in re.findall(r'"(?:static|\.)/([\w.-]+)"', text):
            assert file in TEXTS, (name, file)
    scripts = {name for name in TEXTS if name.endswith(".js")}
    named = {file for text in TEXTS.values() for file in re.findall(r"/([\w-]+\.js)\"", text)}
    assert named == scripts, "no script is left over"


def test_ids_that_scripts_and_labels_speak_of_exist() -> None:
    html = TEXTS["index.html"]
    ids = re.findall(r'\sid="([^"]+)"', html)
    assert len(ids) == len(set(ids))
    wanted = set(re.findall(r'(?:for|aria-labelledby|aria-describedby)="([^"]+)"', html))
    wanted |= set(re.findall(r'href="#([^"]+)"', html))
    for name, text in TEXTS.items():
        if name.endswith(".js"):
            wanted |= set(re.findall(r'byId\("([^"]+)"\)', text))
    assert wanted <= set(ids)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_told_from_its_ground(scheme: str) -> None:
    """The contrast that WCAG asks for at level AA: 4.5 for text."""
    light, dark = re.findall(r":root \{(.*?)\}", TEXTS["style.css"], re.DOTALL)
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})\b", light))
    if scheme == "dark":
        colours |= dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})\b", dark))
    pairs = [
        (text, ground) for text in ("text", "muted", "accent") for ground in ("card", "ground")
    ]
    pairs += [(level, f"{level}-ground") for level in ("well", "watch", "trouble")]
    pairs += [("trouble", "card"), ("watch", "card"), ("well", "card"), ("on-accent", "accent")]
    for text, ground in pairs:
        assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
    assert contrast(colours["field"], colours["card"]) >= 3


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_all_of_it_is_in_the_wheel(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", tmp_path],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=60,
    )
    (wheel,) = tmp_path.glob("*.whl")
    inside = set(zipfile.ZipFile(wheel).namelist())
    assert {f"heartbeat_stream/web/page/{name}" for name in TEXTS} <= inside
