"""What is deployed, as data: the Dockerfile, the Compose file, Kubernetes' manifests as built."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

ROOT = Path(__file__).parents[2]
OVERLAYS = ("base", "overlays/dev", "overlays/production")

Manifest = dict[str, Any]

_SECONDS = 60


def program(name: str) -> str:
    """A program that comes with the extra `deploy`, or another one of that name on the PATH.

    Without it a test is skipped; under CI, which must not pass for lack of a tool, it fails.
    """
    beside_python = str(Path(sys.executable).parent)
    found = shutil.which(name, path=beside_python) or shutil.which(name)
    if found is None:
        message = f"{name} is not installed, and there is no wheel of it for this platform"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return found


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command at the top of the repository; its output is kept, its exit code not judged."""
    return subprocess.run(
        command,
        cwd=ROOT,
        env={"PATH": os.environ.get("PATH", os.defpath), "HOME": "/nonexistent", **environment},
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )


# -- Dockerfile ------------------------------------------------------------------------------------


class Instruction(NamedTuple):
    name: str
    text: str

    @property
    def words(self) -> list[str]:
        """The exec form's words. Raises ValueError for the shell form."""
        words: list[str] = json.loads(self.text)
        return words


@cache
def dockerfile() -> list[Instruction]:
    """The instructions in order, comments left out, lines joined."""
    text = (ROOT / "Dockerfile").read_text()
    text = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"\\\n", " ", text)
    lines = (line.strip() for line in text.splitlines())
    return [Instruction(*re.split(r"\s+", line, maxsplit=1)) for line in lines if line]


def last_stage() -> list[Instruction]:
    """The instructions of the image itself, from its FROM on."""
    instructions = dockerfile()
    last = max(n for n, instruction in enumerate(instructions) if instruction.name == "FROM")
    return instructions[last:]


def image_environment() -> dict[str, str]:
    """What the image sets, PATH as written."""
    found: dict[str, str] = {}
    for instruction in last_stage():
        if instruction.name == "ENV":
            found |= dict(pair.split("=", 1) for pair in instruction.text.split())
    return found


# -- Compose ---------------------------------------------------------------------------------------


@cache
def compose(**variables: str) -> Manifest:
    """The Compose file as Compose itself reads it, all profiles on. Raises where it is wrong."""
    result = run(program("docker-compose"), "--profile", "*", "config", **variables)
    assert result.returncode == 0, result.stderr
    loaded: Manifest = yaml.safe_load(result.stdout)
    return loaded


# -- Kubernetes ------------------------------------------------------------------------------------


@cache
def build(overlay: str) -> list[Manifest]:
    """The manifests of a folder in k8s/, as kubectl would apply them."""
    result = run(program("kubectl"), "kustomize", f"k8s/{overlay}")
    assert result.returncode == 0, result.stderr
    return [one for one in yaml.safe_load_all(result.stdout) if one]


def of_kind(overlay: str, kind: str) -> list[Manifest]:
    return [manifest for manifest in build(overlay) if manifest["kind"] == kind]


def the(overlay: str, kind: str, name: str = "heartbeat-stream") -> Manifest:
    """One manifest. Raises ValueError unless there is exactly one."""
    (found,) = (one for one in of_kind(overlay, kind) if one["metadata"]["name"] == name)
    return found


def name_of(manifest: Manifest) -> str:
    return f"{manifest['kind']}/{manifest['metadata']['name']}"


def our_workloads(overlay: str) -> list[Manifest]:
    """Worker and init: what runs our image."""
    return [the(overlay, "StatefulSet"), the(overlay, "Job", "heartbeat-stream-init")]


def pod_of(workload: Manifest) -> Manifest:
    spec: Manifest = workload["spec"]["template"]["spec"]
    return spec


def container_of(workload: Manifest) -> Manifest:
    """Its only container."""
    (container,) = pod_of(workload)["containers"]
    found: Manifest = container
    return found


def mounted_files(workload: Manifest) -> Iterator[str]:
    """The files that Secrets put into the container."""
    volumes = {volume["name"]: volume for volume in pod_of(workload)["volumes"]}
    for mount in container_of(workload)["volumeMounts"]:
        for item in volumes.get(mount["name"], {}).get("secret", {}).get("items", []):
            yield f"{mount['mountPath']}/{item['path']}"


def environment_of(overlay: str, workload: Manifest, pod: Mapping[str, str]) -> dict[str, str]:
    """The container's variables, as the kubelet works them out for a pod with these metadata."""
    container = container_of(workload)
    found: dict[str, str] = {}
    for source in container["envFrom"]:
        found |= the(overlay, "ConfigMap", source["configMapRef"]["name"])["data"]
    for variable in container["env"]:
        if "value" in variable:
            text = re.sub(r"\$\((\w+)\)", lambda match: found[match[1]], variable["value"])
        elif "fieldRef" in variable["valueFrom"]:
            text = pod[variable["valueFrom"]["fieldRef"]["fieldPath"]]
        else:
            text = f"from-secret-{variable['valueFrom']['secretKeyRef']['key']}"
        found[variable["name"]] = text
    return found


def matches(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    return bool(selector) and selector.items() <= labels.items()
