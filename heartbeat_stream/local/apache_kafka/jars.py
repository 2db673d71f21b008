"""Gets Apache Kafka by its Maven coordinates, once, into a cache folder.

What it consists of stands in pom.xml beside this file. Where Maven gets it from is Maven's own
setting.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

PROJECT = Path(__file__).with_name("pom.xml")
LOGGING = PROJECT.with_name("log4j2.properties")
JAVA_AT_LEAST = 17
MAVEN_SECONDS = 600
# Java keeps its performance counters in a file in the system's temporary directory.
NO_STRAY_FILE = "-XX:-UsePerfData"


class MissingTool(RuntimeError):
    """Java or Maven is not there or too old. The message is one line that says what to do."""


def kafka_version() -> str:
    """The version that is run."""
    match = re.search(r"<kafka\.version>(.+?)</kafka\.version>", PROJECT.read_text())
    assert match is not None
    return match.group(1)


def cache_directory() -> Path:
    """Where this set of jars lies, or will: a change of the project file changes the name."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = hashlib.sha256(PROJECT.read_bytes()).hexdigest()[:8]
    return base / "heartbeat-stream" / f"kafka-{kafka_version()}-{digest}"


def java() -> str:
    """The Java to run: JAVA_HOME's, or the one on the PATH. Raises MissingTool."""
    home = os.environ.get("JAVA_HOME")
    program = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    where = "in JAVA_HOME" if home else "on the PATH"
    if program is None:
        raise MissingTool(f"Apache Kafka needs Java {JAVA_AT_LEAST} or newer, none is {where}")
    output = subprocess.run(
        [program, NO_STRAY_FILE, "-version"], capture_output=True, text=True, check=False
    )
    match = re.search(r'version "(\d+)', output.stderr)
    version = int(match.group(1)) if match else 0
    if version < JAVA_AT_LEAST:
        raise MissingTool(
            f"Apache Kafka needs Java {JAVA_AT_LEAST} or newer, the one {where} is {version}"
        )
    return program


def kafka_jars() -> Path:
    """The folder with Apache Kafka's jars, downloaded if it is not there yet.

    Several processes may ask at once. Raises MissingTool where Maven is missing, RuntimeError
    with Maven's last lines where it fails.
    """
    cached = cache_directory()
    if cached.is_dir():
        return cached
    maven = shutil.which("mvn")
    if maven is None:
        raise MissingTool("Apache Kafka is fetched with Maven, and there is no mvn on the PATH")
    cached.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="kafka-download-", dir=cached.parent) as directory:
        download = Path(directory) / "jars"
        _run_maven(maven, download)
        try:
            download.rename(cached)
        except OSError:
            if not cached.is_dir():  # another process was faster
                raise
    return cached


def _run_maven(maven: str, destination: Path) -> None:
    command = [maven, "--batch-mode", "--quiet", "--file", str(PROJECT)]
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime"]
    result = subprocess.run(
        [*command, *goal, f"-DoutputDirectory={destination}"],
        capture_output=True,
        text=True,
        timeout=MAVEN_SECONDS,
        env={**os.environ, "MAVEN_OPTS": f"{os.environ.get('MAVEN_OPTS', '')} {NO_STRAY_FILE}"},
        check=False,
    )
    if result.returncode != 0:
        lines = (result.stdout + result.stderr).strip().splitlines()
        raise RuntimeError("Maven could not get Apache Kafka: " + " | ".join(lines[:5]))
