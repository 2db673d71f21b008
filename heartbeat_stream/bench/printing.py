"""How long the message filter takes from a text's arrival to its print, under a steady load.

A text has arrived when it was handed to the producer, and is printed when a consumer of the output
topic has it: so the way to the broker and the way from it are part of what is measured. Both are
looked at in this process, by one clock.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from aiokafka import AIOKafkaConsumer, TopicPartition

from heartbeat_stream.bench.ground import Ground, Site
from heartbeat_stream.bench.worker_process import BenchError
from heartbeat_stream.local.message_traffic import MessageTraffic
from heartbeat_stream.local.record_sender import open_sender
from heartbeat_stream.local.simulate import records_due

__all__ = ["Printing", "PrintingTest", "measure_printing"]

_PARTITIONS = 8
_TICK_S = 0.01
_LATE_S = 30.0

Say = Callable[[str], None]
#: A print: the text, and the timestamp of the record that it is printed for.
_Print = tuple[bytes, int]


@dataclass(frozen=True)
class PrintingTest:
    """So many texts a second, for so long; ``window_ms`` is the filter's."""

    per_second: int
    seconds: float
    window_ms: int = 10_000


@dataclass(frozen=True)
class Printing:
    """``latencies_ms`` of all prints; ``suppressed``: texts that were not to be printed."""

    test: PrintingTest
    broker: str
    sent: int
    suppressed: int
    latencies_ms: list[float]
    worker_cpu_share: float


async def measure_printing(ground: Ground, test: PrintingTest, say: Say) -> Printing:
    """Raises BenchError where anything but the right texts was printed."""
    topic = await ground.create_topic("texts", _PARTITIONS)
    site = _site(ground, topic, test)
    await asyncio.to_thread(site.init)
    arrived: dict[_Print, float] = {}
    printed: dict[_Print, float] = {}
    with site.worker() as worker:
        await asyncio.to_thread(worker.wait_until_ready)
        watching = asyncio.create_task(_watch(site, printed))
        cpu, started = worker.cpu_seconds(), time.perf_counter()
        sent = await _produce(ground.brokers, topic, test, arrived, say)
        cpu_share = (worker.cpu_seconds() - cpu) / (time.perf_counter() - started)
        deadline = time.perf_counter() + _LATE_S
        while len(printed) < len(arrived) and time.perf_counter() < deadline:
            worker.check()
            await asyncio.sleep(_TICK_S)
        watching.cancel()
        await asyncio.wait({watching})
        await asyncio.to_thread(worker.stop)
    if printed.keys() != arrived.keys():
        missing, wrong = len(arrived.keys() - printed.keys()), len(printed.keys() - arrived.keys())
        raise BenchError(f"{site.app_id}: {missing} texts were not printed, {wrong} wrongly")
    latencies = [1000 * (printed[one] - at) for one, at in arrived.items()]
    suppressed = sent - len(arrived)
    return Printing(test, ground.kind, sent, suppressed, latencies, cpu_share)


def _site(ground: Ground, topic: str, test: PrintingTest) -> Site:
    site = ground.site(topic, _PARTITIONS, keyed=False)
    settings = {
        **site.settings,
        "HEARTBEAT_JOBS": "messages",
        "HEARTBEAT_MESSAGES_TOPIC": topic,
        "HEARTBEAT_MESSAGES_SINK": "topic",
        "HEARTBEAT_MESSAGES_OUTPUT_TOPIC": _output(site),
        "HEARTBEAT_MESSAGES_WINDOW_MS": str(test.window_ms),
    }
    return replace(site, settings=settings)


def _output(site: Site) -> str:
    return f"{site.app_id}-printed"


async def _produce(
    brokers: str, topic: str, test: PrintingTest, arrived: dict[_Print, float], say: Say
) -> int:
    traffic, total, sent = MessageTraffic(1, test.window_ms), int(test.per_second * test.seconds), 0
    async with open_sender(brokers, topic, {}) as sender:
        started = time.perf_counter()
        while sent < total:
            due = records_due(time.perf_counter() - started, test.per_second, total) - sent
            texts = traffic.generate(time.time_ns() // 1_000_000, due)
            now = time.perf_counter()
            arrived.update({(one.record[1], one.at_ms): now for one in texts if one.printed})
            await sender.send_each([(one.record, one.at_ms) for one in texts])
            sent += due
            say(f"printing: {sent:,} of {total:,} texts sent")
            await asyncio.sleep(_TICK_S)
        await sender.flush()
    return sent


async def _watch(site: Site, printed: dict[_Print, float]) -> None:
    """Note when each print has come, until this is cancelled."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=site.settings["HEARTBEAT_BROKERS"],
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=10,  # meanwhile partitions that have just answered are not asked again
    )
    await consumer.start()
    try:
        consumer.assign([TopicPartition(_output(site), one) for one in range(site.partitions)])
        while True:
            found = await consumer.getmany(timeout_ms=1000)
            now = time.perf_counter()
            for records in found.values():
                for record in records:
                    printed.setdefault((record.value, record.timestamp), now)
    finally:
        await consumer.stop()
