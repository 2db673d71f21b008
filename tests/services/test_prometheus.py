"""What observability/ asks of Prometheus, asked of a real one that reads a real worker."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from heartbeat_stream.local.fleet import Fleet
from heartbeat_stream.local.process import LOOPBACK, ServerProcess, take_port
from heartbeat_stream.metrics.catalogue import METRICS, SECTIONS, MetricSpec
from tests.support.brokers import on_embedded
from tests.support.prometheus_files import ALERT_TESTS, ALERTS, panels, queries
from tests.support.wait import wait_until_async
from tests.support.worker import Worker
from tests.support.world import World, load

pytestmark = [
    pytest.mark.services,
    pytest.mark.skipif(
        shutil.which("promtool") is None and os.environ.get("CI") != "true",
        reason="Prometheus is not installed: `make test-services` installs it",
    ),
]

ROOMS = 100
#: Rows of the dashboard, and sections of the list, of what this worker does not run.
OTHERS = {"Jobs that judge messages", "The collector"}


def _may_be_empty() -> set[str]:
    """Panels that show nothing while all is well, and nobody comes or goes; those of others."""
    found = {"Failed writes by kind", "Rebalance, on average"}
    row = ""
    for panel in panels():
        if panel["type"] == "row":
            row = panel["title"]
        elif row in OTHERS:
            found.add(panel["title"])
    return found


MAY_BE_EMPTY = _may_be_empty()


def promtool(*arguments: str, given: bytes = b"") -> str:
    """Run promtool; what it has printed. It must not have found fault."""
    done = subprocess.run(
        ["promtool", *arguments],
        input=given,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout.decode()
    return done.stdout.decode()


def test_the_rules_are_rules() -> None:
    assert "SUCCESS" in promtool("check", "rules", str(ALERTS))


def test_the_rules_fire_when_they_must_and_only_then() -> None:
    assert "SUCCESS" in promtool("test", "rules", str(ALERT_TESTS))


class Prometheus:
    """A Prometheus that reads one worker every second, and evaluates the alerts as often."""

    def __init__(self, directory: Path, worker: Worker) -> None:
        self.url = f"http://{LOOPBACK}:{take_port(0, 'Prometheus')}"
        configuration = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(ALERTS)],
            "scrape_configs": [
                {
                    "job_name": "heartbeat-stream",
                    "static_configs": [{"targets": [f"{LOOPBACK}:{worker.port}"]}],
                }
            ],
        }
        path = directory / "prometheus.yml"
        path.write_text(json.dumps(configuration), "utf-8")  # which is YAML
        promtool("check", "config", str(path))
        self._process = ServerProcess(
            "Prometheus",
            [
                shutil.which("prometheus") or "prometheus",
                f"--config.file={path}",
                f"--storage.tsdb.path={directory / 'tsdb'}",
                f"--web.listen-address={self.url.removeprefix('http://')}",
            ],
            directory=directory,
            log=directory / "prometheus.log",
            environment={"GOMAXPROCS": "1"},
        )

    async def ask(self, path: str, **parameters: str) -> Any:
        """The data of an answer of its API."""
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as session,
            session.get(f"{self.url}/api/v1/{path}", params=parameters) as response,
        ):
            answer = await response.json()
            assert answer["status"] == "success", (path, parameters, answer)
            return answer["data"]

    async def result(self, expression: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await self.ask("query", query=expression))["result"]
        return found

    async def value(self, expression: str) -> float | None:
        """The one value of an expression; None where there is none yet."""
        found = await self.result(expression)
        return float(found[0]["value"][1]) if found else None

    async def __aenter__(self) -> Prometheus:
        self._process.start()

        async def answers() -> bool:
            try:
                return await self.value("vector(1)") == 1
            except (aiohttp.ClientError, OSError):
                return False

        await wait_until_async(answers, 30, what="Prometheus answers")
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self._process.stop, signal.SIGTERM)


@pytest.fixture
async def prometheus(world: World, tmp_path: Path) -> AsyncIterator[Prometheus]:
    """A Prometheus, with a worker under load that it has read for some seconds."""
    await world.prepare(cooldown_ms=1_000)
    worker = await world.start_worker().ready()
    async with (
        load(world, Fleet(hotels=2, rooms_per_hotel=ROOMS // 2), rate=500),
        Prometheus(tmp_path, worker) as prometheus,
    ):
        promtool("check", "metrics", given=(await worker.get("/metrics"))[1])

        async def has_read() -> bool:
            return (await prometheus.value("increase(heartbeat_rows_written_total[1m])") or 0) > 1

        await wait_until_async(has_read, 60, what="Prometheus has seen rows being written")
        yield prometheus


@on_embedded
@pytest.mark.slow
async def test_every_query_is_answered(prometheus: Prometheus) -> None:
    asked = list(queries())
    for query in asked:
        await prometheus.result(query.expression)  # or it raises

    async def all_show_something() -> bool:
        empty.clear()
        for where, expression in asked:
            if where.startswith("panel") and not await prometheus.result(expression):
                empty.add(where.split("'")[1])
        return empty <= MAY_BE_EMPTY

    empty: set[str] = set()
    try:
        await wait_until_async(all_show_something, 60, every=2)
    except AssertionError:
        assert empty <= MAY_BE_EMPTY

    # What the panels of the first row say is true.
    assert await prometheus.value("sum(heartbeat_ready)") == 1
    assert await prometheus.value("max(heartbeat_database_available)") == 1
    # The counter is of now, the pace of the last seconds.
    await wait_until_async(
        lambda: _near(prometheus, "sum(rate(heartbeat_records_total[10s]))", 500, 0.5),
        60,
        what="Prometheus sees about 500 heartbeats a second",
    )
    (restart,) = [query for query in queries() if query.where == "panel 'A restart now'"]
    await wait_until_async(
        lambda: _near(prometheus, restart.expression, 1.0, 0), 30, what="a restart is safe now"
    )

    rules = [rule for group in (await prometheus.ask("rules"))["groups"] for rule in group["rules"]]
    assert {rule["health"] for rule in rules} == {"ok"}, rules
    assert await prometheus.result('ALERTS{alertstate="firing"}') == []

    # Nothing is told that the list does not know, and nothing that it knows is missing.
    names = set(await prometheus.ask("label/__name__/values"))
    told = {name for name in names if name.startswith("heartbeat_")}
    assert told <= _series(METRICS.values())
    ours = [spec for one in SECTIONS if one.title not in OTHERS for spec in one.metrics]
    missing = _series(ours) - told
    assert missing <= {"heartbeat_write_retries_total"}  # none has failed


def _series(specs: Iterable[MetricSpec]) -> set[str]:
    """The names under which Prometheus keeps them."""
    parts = ("_bucket", "_sum", "_count")
    return {
        spec.name + part
        for spec in specs
        for part in (parts if spec.kind == "histogram" else ("",))
    }


async def _near(prometheus: Prometheus, expression: str, wanted: float, tolerance: float) -> bool:
    value = await prometheus.value(expression)
    return value is not None and abs(value - wanted) <= tolerance * wanted
