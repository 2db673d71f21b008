"""The manifests as built: valid for Kubernetes, and in agreement with the code and each other."""

from __future__ import annotations

import base64
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from kubernetes_validate import utils as schemas

from heartbeat_stream import __version__
from heartbeat_stream.commands import load_commands
from heartbeat_stream.config.agreement import check_web_exposure
from heartbeat_stream.local.apache_kafka.jars import kafka_version
from heartbeat_stream.settings import Settings
from heartbeat_stream.streaming.topics import repartition_topic_name
from tests.support.custom_resources import SCHEMAS
from tests.support.drain import longest_end_s
from tests.support.manifests import (
    OVERLAYS,
    ROOT,
    Manifest,
    build,
    compose,
    container_of,
    environment_of,
    image_environment,
    last_stage,
    matches,
    mounted_files,
    name_of,
    of_kind,
    our_workloads,
    pod_of,
    run,
    the,
)
from tests.support.routes import worker_routes

# The oldest that knows all that is used (unhealthyPodEvictionPolicy, the retention of claims), and
# the newest whose schemas there are.
KUBERNETES = ("1.27", kubernetes_validate.latest_version())
PRODUCTION = "overlays/production"

POD = {"metadata.name": "heartbeat-stream-0", "metadata.namespace": "anywhere"}
IDLE_MIB = 100
BYTES_PER_ROOM = 600


@pytest.fixture(scope="module", autouse=True)
def _schemas_are_read_once() -> Iterator[None]:
    """They are megabytes of JSON, which the validator reads anew for each manifest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schemas, "schema_contents", cache(schemas.schema_contents))
        yield


each_overlay = pytest.mark.parametrize("overlay", OVERLAYS)


def settings_of(overlay: str, workload: Manifest, directory: Path, number: int = 0) -> Settings:
    """What the container makes of its variables. Files of Secrets lie below `directory`."""
    pod = {**POD, "metadata.name": f"heartbeat-stream-{number}"}
    environment = {
        key: value for key, value in image_environment().items() if key.startswith("HEARTBEAT_")
    } | environment_of(overlay, workload, pod)
    for path in mounted_files(workload):
        there = directory / path.lstrip("/")
        there.parent.mkdir(parents=True, exist_ok=True)
        there.write_text(
            "from-the-secret-web\n" if path.endswith("/token") else "from-the-secret\n"
        )
    moved = {
        key: value.replace("/etc/heartbeat-stream/", f"{directory}/etc/heartbeat-stream/")
        for key, value in environment.items()
    }
    return Settings.load(moved)


def worker_settings(overlay: str, directory: Path, number: int = 0) -> Settings:
    return settings_of(overlay, the(overlay, "StatefulSet"), directory, number)


# -- Kubernetes' own judgement ---------------------------------------------------------------------


@each_overlay
@pytest.mark.parametrize("version", KUBERNETES)
def test_every_manifest_is_valid(overlay: str, version: str) -> None:
    """Strict: a misspelt field is an error. Custom resources have no schema there."""
    for manifest in build(overlay):
        if manifest["apiVersion"] in SCHEMAS:
            continue
        try:
            kubernetes_validate.validate(manifest, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            pytest.fail(f"{name_of(manifest)} at {list(error.path)}: {error.message}")


@each_overlay
def test_every_custom_resource_has_what_its_operator_asks_for(overlay: str) -> None:
    """Against schemas kept by hand, of the fields that are used: the operators ship none."""
    for manifest in build(overlay):
        if manifest["apiVersion"] in SCHEMAS:
            jsonschema.validate(manifest, SCHEMAS[manifest["apiVersion"]][manifest["kind"]])


def test_what_is_built() -> None:
    base = {name_of(manifest) for manifest in build("base")}
    assert {re.sub(r"-[a-z0-9]{10}$", "", name) for name in base} == {
        "ServiceAccount/heartbeat-stream",
        "ConfigMap/heartbeat-stream",
        "Service/heartbeat-stream",
        "Service/heartbeat-stream-web",
        "StatefulSet/heartbeat-stream",
        "PodDisruptionBudget/heartbeat-stream",
        "Job/heartbeat-stream-init",
        "NetworkPolicy/heartbeat-stream",
        "NetworkPolicy/heartbeat-stream-kafka",
        "NetworkPolicy/heartbeat-stream-postgres",
    }
    production = {manifest["kind"] for manifest in build(PRODUCTION)}
    operators = {"ServiceMonitor", "PrometheusRule", "ScaledObject", "TriggerAuthentication"}
    assert operators <= production
    assert not operators & {manifest["kind"] for manifest in build("overlays/dev")}


# -- settings --------------------------------------------------------------------------------------


@each_overlay
def test_settings_are_known_and_right(overlay: str, tmp_path: Path) -> None:
    for workload in our_workloads(overlay):
        settings = settings_of(overlay, workload, tmp_path)
        assert not settings.warnings, name_of(workload)
        assert ":from-the-secret@" in settings.database_url
        for variable, value in environment_of(overlay, workload, POD).items():
            if variable.startswith("HEARTBEAT_") and variable.endswith("_FILE"):
                assert value in set(mounted_files(workload)), variable


@each_overlay
def test_no_secret_stands_in_a_manifest_that_is_applied_outside_development(overlay: str) -> None:
    if overlay == "overlays/dev":
        assert len(of_kind(overlay, "Secret")) == 2
        return
    assert not of_kind(overlay, "Secret")
    for workload in our_workloads(overlay):
        for name, value in environment_of(overlay, workload, POD).items():
            assert not re.search(r"(PASSWORD|TOKEN|SECRET)$", name), name
            assert not re.search(r"://[^/@]*:[^/@]*@", value), name


def test_production_is_encrypted_and_logs_in(tmp_path: Path) -> None:
    settings = worker_settings(PRODUCTION, tmp_path)
    assert settings.kafka_security_protocol == "SASL_SSL"
    assert settings.kafka_username == "from-secret-username"
    assert settings.kafka_password == "from-the-secret"
    assert "sslmode=verify-full" in settings.database_url
    assert settings.replication_factor == 3


@each_overlay
def test_each_worker_has_an_address_and_a_name_of_its_own(overlay: str, tmp_path: Path) -> None:
    first, second = (worker_settings(overlay, tmp_path, number) for number in (0, 1))
    stateful_set = the(overlay, "StatefulSet")
    headless = the(overlay, "Service", stateful_set["spec"]["serviceName"])
    assert headless["spec"]["clusterIP"] == "None"
    host = f"heartbeat-stream-0.{headless['metadata']['name']}.anywhere.svc"
    assert first.web_url == f"http://{host}:{first.web_port}"
    assert first.web_url != second.web_url
    assert first.group_instance_id == "heartbeat-stream-0"
    assert second.group_instance_id == "heartbeat-stream-1"


@each_overlay
def test_workers_and_init_use_the_same_settings(overlay: str) -> None:
    maps = {
        container_of(one)["envFrom"][0]["configMapRef"]["name"] for one in our_workloads(overlay)
    }
    assert len(maps) == 1
    assert re.search(r"-[a-z0-9]{10}$", maps.pop()), "a change of a setting rolls the workers"


# -- the container ---------------------------------------------------------------------------------


@each_overlay
def test_commands_of_the_image(overlay: str) -> None:
    worker, init = our_workloads(overlay)
    assert container_of(worker)["args"] == ["worker"]
    assert container_of(init)["args"] == ["init"]
    assert {"worker", "init"} <= {command.NAME for command in load_commands()}
    for one in (worker, init):
        assert "command" not in container_of(one), "the image's entry point gets the signals"


def test_images_are_of_this_version() -> None:
    for overlay in OVERLAYS[1:]:
        for workload in our_workloads(overlay):
            assert container_of(workload)["image"].endswith(f"heartbeat-stream:{__version__}")
    others = {container_of(one)["image"] for one in of_kind("overlays/dev", "Deployment")}
    assert others == {
        compose()["services"]["kafka"]["image"],
        compose()["services"]["postgres"]["image"],
    }
    assert f"apache/kafka:{kafka_version()}" in others


@each_overlay
def test_pods_have_no_rights_that_they_do_not_need(overlay: str) -> None:
    (user,) = (i.text for i in last_stage() if i.name == "USER")
    uid, gid = map(int, user.split(":"))
    for workload in our_workloads(overlay):
        pod, container = pod_of(workload), container_of(workload)
        assert pod["automountServiceAccountToken"] is False
        assert pod["enableServiceLinks"] is False, "Services make variables like HEARTBEAT_*"
        context = pod["securityContext"]
        assert context["runAsNonRoot"] is True
        assert (context["runAsUser"], context["runAsGroup"], context["fsGroup"]) == (uid, gid, gid)
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


@each_overlay
def test_what_is_written_goes_to_volumes(overlay: str, tmp_path: Path) -> None:
    stateful_set = the(overlay, "StatefulSet")
    mounts = {m["mountPath"]: m["name"] for m in container_of(stateful_set)["volumeMounts"]}
    (claim,) = stateful_set["spec"]["volumeClaimTemplates"]
    data_dir = str(worker_settings(overlay, tmp_path).data_dir)
    assert mounts[data_dir] == claim["metadata"]["name"]
    for workload in our_workloads(overlay):
        volumes = {volume["name"]: volume for volume in pod_of(workload)["volumes"]}
        (tmp,) = (
            m["name"] for m in container_of(workload)["volumeMounts"] if m["mountPath"] == "/tmp"
        )
        assert "emptyDir" in volumes[tmp]


@each_overlay
def test_memory_is_enough_for_what_is_kept_in_it(overlay: str, tmp_path: Path) -> None:
    settings = worker_settings(overlay, tmp_path)
    resources = container_of(the(overlay, "StatefulSet"))["resources"]
    needed = IDLE_MIB + settings.cache_rooms * BYTES_PER_ROOM / 2**20 + settings.rocksdb_cache_mb
    request, limit = (_mib(resources[kind]["memory"]) for kind in ("requests", "limits"))
    assert request >= needed
    assert limit >= 1.3 * needed, "pending rooms and batches in flight come on top"
    assert "cpu" in resources["requests"]
    assert "cpu" not in resources["limits"], "being throttled looks like a stalled loop"


def _mib(quantity: str) -> int:
    number, unit = int(quantity[:-2]), quantity[-2:]
    return number * {"Mi": 1, "Gi": 1024}[unit]


@each_overlay
def test_words_that_the_schemas_take_any_text_for(overlay: str) -> None:
    spec = the(overlay, "StatefulSet")["spec"]
    assert spec["podManagementPolicy"] == "Parallel"
    assert spec["updateStrategy"] == {"type": "RollingUpdate"}
    retention = {"whenDeleted": "Retain", "whenScaled": "Delete"}
    assert spec["persistentVolumeClaimRetentionPolicy"] == retention
    assert pod_of(the(overlay, "Job", "heartbeat-stream-init"))["restartPolicy"] == "Never"


# -- life and death --------------------------------------------------------------------------------


@each_overlay
def test_probes_ask_for_what_is_there(overlay: str, tmp_path: Path) -> None:
    container = container_of(the(overlay, "StatefulSet"))
    settings = worker_settings(overlay, tmp_path)
    assert settings.web_host == "0.0.0.0"
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    paths = {}
    for kind in ("startup", "liveness", "readiness"):
        ask = container[f"{kind}Probe"]["httpGet"]
        assert ports[ask["port"]] == settings.web_port
        assert ask["path"] in worker_routes()
        paths[kind] = ask["path"]
    assert paths == {
        "startup": "/health/live",
        "liveness": "/health/live",
        "readiness": "/health/ready",
    }


@each_overlay
def test_the_web_view_asks_for_a_token_and_probes_and_metrics_do_not(
    overlay: str, tmp_path: Path
) -> None:
    settings = worker_settings(overlay, tmp_path)
    check_web_exposure(settings)
    assert settings.web_token == "from-the-secret-web"
    assert set(settings.web_open) == {"health", "metrics"}
    init = settings_of(overlay, the(overlay, "Job", "heartbeat-stream-init"), tmp_path)
    assert init.web_token is None, "init shows nothing, and needs no token"


def test_the_token_of_the_development_overlay_is_one() -> None:
    (secret,) = (
        one
        for one in of_kind("overlays/dev", "Secret")
        if one["metadata"]["name"].startswith("heartbeat-stream-web")
    )
    token = base64.b64decode(secret["data"]["token"]).decode()
    check_web_exposure(Settings.load({"HEARTBEAT_WEB_TOKEN": token, "HEARTBEAT_WEB_HOST": "::"}))


@each_overlay
def test_a_worker_that_waits_for_kafka_is_not_killed_for_it(overlay: str, tmp_path: Path) -> None:
    """It says itself what is missing, and ends."""
    probe = container_of(the(overlay, "StatefulSet"))["startupProbe"]
    patience = probe["periodSeconds"] * probe["failureThreshold"]
    assert patience >= worker_settings(overlay, tmp_path).startup_timeout_ms / 1000 + 30


@each_overlay
def test_a_worker_has_the_time_to_end(overlay: str, tmp_path: Path) -> None:
    grace = pod_of(the(overlay, "StatefulSet"))["terminationGracePeriodSeconds"]
    settings = worker_settings(overlay, tmp_path)
    assert grace >= longest_end_s(settings) + 10


@each_overlay
def test_a_restart_is_over_before_the_session(overlay: str, tmp_path: Path) -> None:
    """Otherwise static membership gains nothing: the others would take the partitions over."""
    settings = worker_settings(overlay, tmp_path)
    start_s = 15.0
    assert settings.session_timeout_ms / 1000 >= longest_end_s(settings) + start_s


@each_overlay
def test_no_more_workers_than_partitions(overlay: str, tmp_path: Path) -> None:
    partitions = worker_settings(overlay, tmp_path).partitions
    spec = the(overlay, "StatefulSet")["spec"]
    for scaled in of_kind(overlay, "ScaledObject"):
        assert "replicas" not in spec, "the number is the autoscaler's"
        assert scaled["spec"]["minReplicaCount"] <= scaled["spec"]["maxReplicaCount"] <= partitions
        # With each number of partitions per worker there is one that is worth having.
        assert partitions % scaled["spec"]["maxReplicaCount"] == 0
    if not of_kind(overlay, "ScaledObject"):
        assert 1 <= spec["replicas"] <= partitions


@each_overlay
def test_workers_lie_apart_and_go_one_by_one(overlay: str) -> None:
    stateful_set = the(overlay, "StatefulSet")
    labels = stateful_set["spec"]["template"]["metadata"]["labels"]
    pod = pod_of(stateful_set)
    (term,) = pod["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    (spread,) = pod["topologySpreadConstraints"]
    assert term["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
    assert spread["topologyKey"] == "topology.kubernetes.io/zone"
    for selector in (term["podAffinityTerm"]["labelSelector"], spread["labelSelector"]):
        assert matches(selector["matchLabels"], labels)
    budget = the(overlay, "PodDisruptionBudget")["spec"]
    assert budget["maxUnavailable"] == 1
    assert matches(budget["selector"]["matchLabels"], labels)


# -- who talks to whom -----------------------------------------------------------------------------


@each_overlay
def test_services_lead_to_workers_and_not_to_init(overlay: str, tmp_path: Path) -> None:
    worker, init = (one["spec"]["template"]["metadata"]["labels"] for one in our_workloads(overlay))
    port = worker_settings(overlay, tmp_path).web_port
    for name in ("heartbeat-stream", "heartbeat-stream-web"):
        service = the(overlay, "Service", name)["spec"]
        assert matches(service["selector"], worker)
        assert not matches(service["selector"], init)
        assert [(p["port"], p["targetPort"]) for p in service["ports"]] == [(port, "web")]
        assert service.get("type", "ClusterIP") == "ClusterIP"


def policies(overlay: str) -> list[Manifest]:
    return [
        one
        for one in of_kind(overlay, "NetworkPolicy")
        if one["metadata"]["name"].startswith("heartbeat-stream")
    ]


@each_overlay
def test_nobody_is_let_in_or_out_without_being_named(overlay: str) -> None:
    workloads = our_workloads(overlay)
    for policy in policies(overlay):
        spec = policy["spec"]
        for one in workloads:
            labels = one["spec"]["template"]["metadata"]["labels"]
            assert matches(spec["podSelector"]["matchLabels"], labels)
        for peers, rules in (("from", "ingress"), ("to", "egress")):
            for rule in spec.get(rules, ()):
                assert rule[peers]
                assert rule["ports"]
                for peer in rule[peers]:
                    assert peer.get("namespaceSelector") != {}
                    assert peer.get("podSelector") != {}
                    assert peer.get("ipBlock", {}).get("cidr") != "0.0.0.0/0"
    (main,) = (p["spec"] for p in policies(overlay) if p["metadata"]["name"] == "heartbeat-stream")
    assert set(main["policyTypes"]) == {"Ingress", "Egress"}
    (inward,) = main["ingress"]
    assert inward["ports"] == [{"protocol": "TCP", "port": "web"}]
    (namespaces,) = (p["namespaceSelector"] for p in inward["from"] if "namespaceSelector" in p)
    (names,) = namespaces["matchExpressions"]
    assert names["key"] == "kubernetes.io/metadata.name"
    assert names["operator"] == "In"
    assert names["values"]
    assert all(names["values"])


@each_overlay
def test_the_ways_out_lead_to_kafka_postgresql_and_the_name_server(
    overlay: str, tmp_path: Path
) -> None:
    settings = worker_settings(overlay, tmp_path)
    kafka = {int(broker.rpartition(":")[2]) for broker in settings.brokers}
    (database,) = {int(port) for port in re.findall(r"@[^/]+:(\d+)/", settings.database_url)}
    ports = {
        port["port"]
        for policy in policies(overlay)
        for rule in policy["spec"].get("egress", ())
        for port in rule["ports"]
    }
    assert ports == kafka | {database, 53, "web"}


def test_development_reaches_what_it_brings(tmp_path: Path) -> None:
    overlay = "overlays/dev"
    settings = worker_settings(overlay, tmp_path)
    (broker,) = settings.brokers
    for name, address in (("kafka", broker), ("postgres", "postgres:5432")):
        service = the(overlay, "Service", name)
        assert address == f"{name}:{service['spec']['ports'][0]['port']}"
        labels = the(overlay, "Deployment", name)["spec"]["template"]["metadata"]["labels"]
        assert matches(service["spec"]["selector"], labels)
        policy = the(overlay, "NetworkPolicy", f"heartbeat-stream-{name}")["spec"]
        (way_out,) = policy["egress"]
        assert matches(way_out["to"][0]["podSelector"]["matchLabels"], labels)
    kafka = container_of(the(overlay, "Deployment", "kafka"))["env"]
    listeners = {one["name"]: one["value"] for one in kafka}["KAFKA_ADVERTISED_LISTENERS"]
    assert listeners == f"PLAINTEXT://{broker}"
    assert f"@{'postgres:5432'}/" in settings.database_url


# -- monitoring and autoscaling --------------------------------------------------------------------


def test_prometheus_finds_every_worker_once() -> None:
    monitor = the(PRODUCTION, "ServiceMonitor")["spec"]
    found = [
        service
        for service in of_kind(PRODUCTION, "Service")
        if matches(monitor["selector"]["matchLabels"], service["metadata"]["labels"])
    ]
    assert [service["spec"]["clusterIP"] for service in found] == ["None"]
    (endpoint,) = monitor["endpoints"]
    assert endpoint["port"] in {port["name"] for port in found[0]["spec"]["ports"]}
    assert endpoint["path"] in worker_routes()


def test_the_rules_are_those_of_prometheus() -> None:
    """Otherwise: make rules."""
    made = run(sys.executable, "observability/prometheus_rule.py").stdout
    assert made
    assert (ROOT / "k8s/components/monitoring/prometheus-rule.yaml").read_text() == made
    alerts = yaml.safe_load((ROOT / "observability/alerts.yaml").read_text())
    assert the(PRODUCTION, "PrometheusRule")["spec"] == {"groups": alerts["groups"]}


@pytest.mark.parametrize("which", [PRODUCTION, "component"])
def test_the_autoscaler_looks_at_what_the_workers_read(which: str, tmp_path: Path) -> None:
    scaled: dict[str, Any]
    if which == "component":
        text = (ROOT / "k8s/components/autoscaling/scaled-object.yaml").read_text()
        scaled, overlay = yaml.safe_load(text), "base"
    else:
        scaled, overlay = the(which, "ScaledObject"), which
    settings = worker_settings(overlay, tmp_path)
    target = scaled["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) == ("StatefulSet", "heartbeat-stream")
    triggers = [trigger["metadata"] for trigger in scaled["spec"]["triggers"]]
    topics = [trigger["topic"] for trigger in triggers]
    assert topics == [settings.topic, repartition_topic_name(settings)]
    for trigger in triggers:
        assert trigger["consumerGroup"] == settings.app_id
        assert tuple(trigger["bootstrapServers"].split(",")) == settings.brokers
        assert trigger["allowIdleConsumers"] == "false"
        # What waits for the next checkpoint is no reason for another worker.
        ordinary = 20_000 * settings.checkpoint_ms / 1000
        assert int(trigger["lagThreshold"]) > 2 * ordinary


def test_the_autoscaler_logs_in_as_the_workers_do(tmp_path: Path) -> None:
    settings = worker_settings(PRODUCTION, tmp_path)
    mechanism = settings.kafka_sasl_mechanism.lower().replace("-sha-", "_sha").replace("-", "_")
    credentials = the(PRODUCTION, "TriggerAuthentication", "heartbeat-stream-kafka")
    for trigger in the(PRODUCTION, "ScaledObject")["spec"]["triggers"]:
        assert trigger["metadata"]["tls"] == "enable"
        assert trigger["metadata"]["sasl"] == mechanism
        assert trigger["authenticationRef"]["name"] == credentials["metadata"]["name"]
    given = {one["parameter"]: one for one in credentials["spec"]["secretTargetRef"]}
    assert given.keys() == {"username", "password", "ca"}
    (volume,) = (
        v["secret"]
        for v in pod_of(the(PRODUCTION, "StatefulSet"))["volumes"]
        if v["name"] == "kafka"
    )
    assert {one["name"] for one in given.values()} == {volume["secretName"]}


def test_the_secrets_that_are_expected_are_documented() -> None:
    text = (ROOT / "docs/deployment.md").read_text()
    expected = set()
    for workload in our_workloads(PRODUCTION):
        for volume in pod_of(workload)["volumes"]:
            for item in volume.get("secret", {}).get("items", ()):
                expected.add((volume["secret"]["secretName"], item["key"]))
        for variable in container_of(workload)["env"]:
            if reference := variable.get("valueFrom", {}).get("secretKeyRef"):
                expected.add((reference["name"], reference["key"]))
    documented = {
        (secret, key)
        for secret, files in re.findall(r"create secret generic (\S+) \\\n(.+)\n", text)
        for key in re.findall(r"--from-file=(\S+)", files)
    }
    assert documented == expected
