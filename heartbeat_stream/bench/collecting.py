"""What a client of the collector waits for: requests at a steady rate, by place and store.

    python -m heartbeat_stream.bench.collecting --rate 2000 --seconds 30 [--redis redis://host:port/0]

For each place and store a collector is started on the embedded broker and PostgreSQL. Requests come
when they are due, whether or not earlier ones have been answered, on a few connections as browsers
and balancers keep them; each carries one event, and one in twenty is a copy. A latency is measured
from when a request was due. Prints a table, and exits with 1 where an answer was not 200.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import psutil  # type: ignore[import-untyped]
import uvloop

from heartbeat_stream.bench.histogram import quantile
from heartbeat_stream.local.process import LOOPBACK, free_port
from heartbeat_stream.local.stack import EmbeddedStack
from heartbeat_stream.settings import Settings
from heartbeat_stream.streaming.topic_admin import ensure_topics, kafka_admin
from heartbeat_stream.streaming.topics import TopicSpec

_CONNECTIONS = 256
_COPY_EVERY = 20
_READY_S = 60.0
_END_S = 60.0
_PARTITIONS = 8


class Case(NamedTuple):
    """One way to run a collector."""

    name: str
    environment: dict[str, str]


class Result(NamedTuple):
    """What came of one case: latencies in ms, how many answers were no 200, requests a second, and
    what a request took of the collector's processor, in ms."""

    latencies: list[float]
    failed: int
    rate: float
    cpu_ms: float = 0.0


def cases(redis_url: str | None) -> list[Case]:
    """Every place, with every store that is there."""
    found = [Case("behind Kafka", {"HEARTBEAT_TRACKING_PLACE": "kafka"})]
    stores = ["memory", "postgres", *(["redis"] if redis_url else [])]
    for store in stores:
        environment = {"HEARTBEAT_TRACKING_PLACE": "door", "HEARTBEAT_COLLECT_STORE": store}
        if store == "redis" and redis_url:
            environment["HEARTBEAT_COLLECT_REDIS_URL"] = redis_url
        found.append(Case(f"at the door, {store}", environment))
    return found


@contextmanager
def collector(environment: dict[str, str]) -> Iterator[tuple[int, int]]:
    """A collector that runs; its port and its process id, before it is ready."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "heartbeat_stream", "collect"],
        env={
            **os.environ,
            **environment,
            "HEARTBEAT_COLLECT_PORT": str(port),
            "HEARTBEAT_LOG_LEVEL": "WARNING",
        },
    )
    try:
        yield port, process.pid
    finally:
        process.terminate()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def request(number: int) -> bytes:
    """One event as an SDK posts it; one in so many is that of a while ago again."""
    track = number if number % _COPY_EVERY else number - _COPY_EVERY // 2
    event = {
        "type": "track",
        "event": "view",
        "distinct_id": f"user-{track % 5_000}",
        "_track_id": track + 1,
        "time": 1_700_000_000_000 + track,
        "_flush_time": 1_700_000_000_000 + number,
        "lib": {"$lib": "js"},
        "properties": {"$url": "https://shop.example/a/page", "price": 12.5},
    }
    body = b"data=" + quote(base64.b64encode(json.dumps(event).encode())).encode()
    head = (
        "POST /sa?project=shop HTTP/1.1\r\nHost: collector\r\n"
        f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def load(port: int, rate: float, seconds: float) -> Result:
    """Send at this rate for so long."""
    numbers, total = count(), int(rate * seconds)
    messages = [request(number) for number in range(total)]
    latencies: list[float] = []
    failed = 0
    started = time.perf_counter() + 0.5

    async def connection() -> None:
        nonlocal failed
        reader, writer = await asyncio.open_connection(LOOPBACK, port)
        while (number := next(numbers)) < total:
            due = started + number / rate
            if (early := due - time.perf_counter()) > 0:
                await asyncio.sleep(early)
            writer.write(messages[number])
            failed += not await _answered(reader)
            latencies.append((time.perf_counter() - due) * 1000)
        writer.close()

    await asyncio.gather(*(connection() for _ in range(_CONNECTIONS)))
    return Result(latencies, failed, total / (time.perf_counter() - started))


async def _answered(reader: asyncio.StreamReader) -> bool:
    """Read one answer; whether it is a 200."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
    await reader.readexactly(int(length))
    return head.startswith(b"HTTP/1.1 200")


async def _until_ready(port: int) -> None:
    """Return once the collector has found Kafka. Raises TimeoutError."""
    async with asyncio.timeout(_READY_S):
        while True:
            await asyncio.sleep(0.1)
            try:
                reader, writer = await asyncio.open_connection(LOOPBACK, port)
                ask = b"GET /health/ready HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
                writer.write(ask)
                answer = await reader.read()
                writer.close()
            except OSError:
                continue
            if b'"kafka": true' in answer:
                return


async def _prepare(settings: Settings) -> None:
    topics = (settings.tracking_topic, settings.dead_letter_topic)
    async with kafka_admin(settings) as admin:
        await ensure_topics(admin, [TopicSpec(name, _PARTITIONS, 1) for name in topics])


async def measure(case: Case, stack: EmbeddedStack, rate: float, seconds: float) -> Result:
    """One case from its start to its end."""
    name = case.name.replace(" ", "-").replace(",", "")
    environment = {
        **stack.environment,
        **case.environment,
        "HEARTBEAT_APP_ID": name,
        "HEARTBEAT_TRACKING_TOPIC": f"{name}.tracking",
        "HEARTBEAT_DEAD_LETTER_TOPIC": f"{name}.dead-letter",
        "HEARTBEAT_COLLECT_SPOOL_DIR": str(Path(stack.directory) / "spool"),
    }
    await _prepare(Settings.load(environment))
    with collector(environment) as (port, pid):
        await _until_ready(port)
        await load(port, rate / 2, min(3.0, seconds))
        before = _cpu_s(pid)
        result = await load(port, rate, seconds)
        spent_ms = (_cpu_s(pid) - before) * 1000
        return result._replace(cpu_ms=spent_ms / len(result.latencies))


def _cpu_s(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def _row(*cells: str) -> None:
    sys.stdout.write(f"| {' | '.join(cells)} |\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rate", type=float, default=2_000.0, help="requests a second")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--redis", metavar="URL", help="a Redis to measure with")
    args = parser.parse_args()
    failed = 0
    with EmbeddedStack() as stack:
        _row("place and store", "requests/s", "median ms", "p99 ms", "max ms", "CPU ms", "not 200")
        _row(*["---"] * 7)
        for case in cases(args.redis):
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                result = runner.run(measure(case, stack, args.rate, args.seconds))
            failed += result.failed
            shown = [quantile(result.latencies, share) for share in (0.5, 0.99, 1.0)]
            _row(
                case.name,
                f"{result.rate:.0f}",
                *(f"{value:.1f}" for value in shown),
                f"{result.cpu_ms:.2f}",
                str(result.failed),
            )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
