"""The Dockerfile: what no container engine is needed for to tell."""

from __future__ import annotations

import fnmatch
import re
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from heartbeat_stream.commands import load_commands
from heartbeat_stream.local.process import free_port
from heartbeat_stream.settings import BY_VARIABLE, Settings
from tests.support.manifests import (
    ROOT,
    Instruction,
    dockerfile,
    image_environment,
    last_stage,
    program,
    run,
)
from tests.support.routes import worker_routes


def text_of(name: str) -> str:
    (found,) = (instruction.text for instruction in last_stage() if instruction.name == name)
    return found


def words_of(name: str) -> list[str]:
    (found,) = (instruction.words for instruction in last_stage() if instruction.name == name)
    return found


def test_the_linter_has_nothing_to_say() -> None:
    result = run(program("hadolint"), "Dockerfile")
    assert (result.returncode, result.stdout) == (0, "")


def test_both_stages_have_one_base_that_takes_a_digest() -> None:
    stages = [i.text.split(" AS ")[0] for i in dockerfile() if i.name == "FROM"]
    assert stages == ["python:${PYTHON_TAG}${PYTHON_DIGEST}"] * 2
    arguments = {i.text for i in dockerfile() if i.name == "ARG"}
    assert "PYTHON_DIGEST=" in arguments
    (tag,) = (a.partition("=")[2] for a in arguments if a.startswith("PYTHON_TAG="))
    assert re.fullmatch(r"3\.11\.\d+-slim-\w+", tag), "a patch version, of the Python of the lock"


def test_everything_is_installed_by_hash_and_for_production_alone() -> None:
    installs = [
        command
        for instruction in dockerfile()
        for command in instruction.text.split("&&")
        if instruction.name == "RUN" and " install " in command and "pip" in command
    ]
    assert len(installs) == 3
    for command in installs:
        ours = "--no-deps --no-index /wheels/" in command
        assert ours or re.search(r"--require-hashes -r requirements(-build)?\.lock", command)
    runtime = [command for command in installs if "--python /opt/heartbeat-stream" in command]
    assert ["requirements.lock" in command for command in runtime] == [True, False]
    lock = (ROOT / "requirements.lock").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for extra in ("local", "test", "deploy"):
        for requirement in project["optional-dependencies"][extra]:
            package = re.split(r"[=><;\[ ]", requirement)[0]
            if package not in {"pyyaml"}:
                assert f"\n{package}==" not in lock, f"{package} is not for production"


def test_the_build_context_holds_what_is_copied_and_no_secret() -> None:
    rules = [
        line
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line and not line.startswith("#")
    ]

    def is_sent(path: str) -> bool:
        sent = True
        for rule in rules:
            pattern = rule.removeprefix("!").removeprefix("**/")
            candidates = [path, path.split("/")[0]] + ([path.split("/")[-1]] * ("**/" in rule))
            if any(fnmatch.fnmatchcase(one, pattern) for one in candidates):
                sent = rule.startswith("!")
        return sent

    copies = [i.text.split() for i in dockerfile() if i.name == "COPY"]
    copied = {source for copy in copies if "--from=build" not in copy for source in copy[:-1]}
    assert {"requirements.lock", "pyproject.toml", "heartbeat_stream"} <= copied
    for source in copied:
        assert (ROOT / source).exists()
        assert is_sent(source), f"{source} is kept out by .dockerignore"
    outside = [".env", ".git/config", "secrets/database-password", "tests/conftest.py", ".venv/bin"]
    for path in [*outside, "heartbeat_stream/.env", "heartbeat_stream/core/x.pyc"]:
        assert not is_sent(path), path


def test_the_user_has_a_number_and_no_rights() -> None:
    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", text_of("USER"))


def test_python_is_process_one_and_hears_sigterm() -> None:
    """Exec form: with a shell between, the signal would end at the shell."""
    (entry,) = words_of("ENTRYPOINT")
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts[entry] == "heartbeat_stream.cli:main"
    assert text_of("STOPSIGNAL") == "SIGTERM"
    (command,) = words_of("CMD")
    assert command in {one.NAME for one in load_commands()}


def test_the_settings_of_the_image_are_known_and_right() -> None:
    given = {k: v for k, v in image_environment().items() if k.startswith("HEARTBEAT_")}
    settings = Settings.load(given)
    assert not settings.warnings
    assert str(settings.web_port) == text_of("EXPOSE")
    assert [str(settings.data_dir)] == words_of("VOLUME")
    assert text_of("WORKDIR") != str(settings.data_dir), "a .env file in there would be read"
    assert given.keys() <= BY_VARIABLE.keys()


# -- HEALTHCHECK -----------------------------------------------------------------------------------


def health_check() -> list[str]:
    """The command, to be run with this Python."""
    text = text_of("HEALTHCHECK")
    python, *rest = Instruction("CMD", text.partition(" CMD ")[2]).words
    assert python == "python"
    return [sys.executable, *rest]


class _Worker(BaseHTTPRequestHandler):
    status = 200
    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(self.status)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def web_view() -> Iterator[HTTPServer]:
    _Worker.asked = []
    with HTTPServer(("127.0.0.1", 0), _Worker) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def check_health(port: int) -> int:
    # A proxy that is set must not be asked about this very container.
    proxy = {"http_proxy": "http://127.0.0.1:1", "HTTP_PROXY": "http://127.0.0.1:1"}
    environment = {"HEARTBEAT_WEB_PORT": str(port), **proxy}
    return subprocess.run(
        health_check(), env=environment, stderr=subprocess.DEVNULL, timeout=30, check=False
    ).returncode


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1)])
def test_the_health_check_follows_the_worker(
    web_view: HTTPServer, monkeypatch: pytest.MonkeyPatch, status: int, code: int
) -> None:
    monkeypatch.setattr(_Worker, "status", status)
    assert check_health(web_view.server_port) == code
    assert _Worker.asked == ["/health/live"]
    assert set(_Worker.asked) <= worker_routes()


def test_the_health_check_fails_where_nobody_listens() -> None:
    assert check_health(free_port()) == 1
