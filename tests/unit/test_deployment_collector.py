"""The collector's manifests as built: valid, and in agreement with its settings."""

from __future__ import annotations

from typing import Any

import kubernetes_validate
import pytest

from heartbeat_stream.settings import Settings
from tests.support.manifests import (
    build,
    container_of,
    image_environment,
    last_stage,
    matches,
    name_of,
    pod_of,
    the,
)

FOLDER = "collector"
NAME = "heartbeat-stream-collect"


def deployment() -> dict[str, Any]:
    return the(FOLDER, "Deployment", NAME)


def settings() -> Settings:
    source = container_of(deployment())["envFrom"][0]["configMapRef"]["name"]
    image = {k: v for k, v in image_environment().items() if k.startswith("HEARTBEAT_")}
    return Settings.load(image | the(FOLDER, "ConfigMap", source)["data"])


@pytest.mark.parametrize("version", ["1.27", kubernetes_validate.latest_version()])
def test_every_manifest_is_valid(version: str) -> None:
    for manifest in build(FOLDER):
        kubernetes_validate.validate(manifest, version, strict=True)


def test_what_is_built() -> None:
    assert {name_of(one).split("-collect")[0] for one in build(FOLDER)} == {
        f"{kind}/heartbeat-stream"
        for kind in (
            "ConfigMap",
            "Service",
            "Deployment",
            "HorizontalPodAutoscaler",
            "PodDisruptionBudget",
            "NetworkPolicy",
        )
    }


def test_settings_and_manifests_agree() -> None:
    found, container = settings(), container_of(deployment())
    assert not found.warnings
    assert container["args"] == ["collect"]
    assert found.collect_host == "0.0.0.0"
    (port,) = container["ports"]
    assert port["containerPort"] == found.collect_port
    (service_port,) = the(FOLDER, "Service", NAME)["spec"]["ports"]
    assert service_port["targetPort"] == port["name"]
    assert found.collect_store != "memory", "there are several"
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["port"] == port["name"]


def test_the_spool_has_room_and_time() -> None:
    found = settings()
    volumes = {volume["name"]: volume for volume in pod_of(deployment())["volumes"]}
    mounts = {m["mountPath"]: m["name"] for m in container_of(deployment())["volumeMounts"]}
    (place,) = (path for path in mounts if found.collect_spool_dir.is_relative_to(path))
    size = volumes[mounts[place]]["emptyDir"]["sizeLimit"]
    assert int(size.removesuffix("Gi")) * 1024 > found.collect_spool_mb * 1.2
    grace = pod_of(deployment())["terminationGracePeriodSeconds"]
    waits = found.drain_timeout_ms + 2 * found.collect_request_timeout_ms
    assert grace > waits / 1000 + 30 + 5


def test_pods_are_found_and_have_no_rights_that_they_do_not_need() -> None:
    labels = deployment()["spec"]["template"]["metadata"]["labels"]
    for kind in ("Service", "PodDisruptionBudget"):
        selector = the(FOLDER, kind, NAME)["spec"]["selector"]
        assert matches(selector.get("matchLabels", selector), labels)
    assert matches(deployment()["spec"]["selector"]["matchLabels"], labels)
    assert the(FOLDER, "NetworkPolicy", NAME)["spec"]["podSelector"]["matchLabels"].items() <= (
        labels.items()
    )
    (user,) = (i.text for i in last_stage() if i.name == "USER")
    context = pod_of(deployment())["securityContext"]
    assert f"{context['runAsUser']}:{context['runAsGroup']}" == user
    assert container_of(deployment())["securityContext"]["readOnlyRootFilesystem"] is True
    assert pod_of(deployment())["enableServiceLinks"] is False


def test_the_autoscaler_scales_it() -> None:
    spec = the(FOLDER, "HorizontalPodAutoscaler", NAME)["spec"]
    assert spec["scaleTargetRef"]["name"] == NAME
    assert "replicas" not in deployment()["spec"], "it would be set back with each apply"
    assert spec["minReplicas"] >= 2
