"""The yardstick: how fast one Python process can read the topic at all and keep the newest.

    python -m heartbeat_stream.bench.ceiling BROKERS TOPIC PARTITIONS MESSAGES heartbeats|market

A process of its own, as the worker is. Plain aiokafka, ``getmany``, orjson, a dict: the newest
heartbeat of each room, or where each id of market messages came first. Nothing is kept durably,
nothing is checked, nothing is written. Prints one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import orjson
import uvloop
from aiokafka import AIOKafkaConsumer, ConsumerRecord
from aiokafka.structs import TopicPartition

Take = Callable[[Sequence[ConsumerRecord]], None]


def newest_heartbeats() -> Take:
    """Keeps the newest one of each room."""
    newest: dict[tuple[int, str], dict[str, int | str]] = {}
    loads, find = orjson.loads, newest.get

    def take(records: Sequence[ConsumerRecord]) -> None:
        for record in records:
            heartbeat = loads(record.value)
            room = heartbeat["hotel_id"], heartbeat["room_id"]
            known = find(room)
            if known is None or heartbeat["ts_ms"] > known["ts_ms"]:
                newest[room] = heartbeat

    return take


def first_messages() -> Take:
    """Keeps the offset at which each id of a scope came first."""
    first: dict[tuple[Any, ...], int] = {}
    loads, hold = orjson.loads, first.setdefault

    def take(records: Sequence[ConsumerRecord]) -> None:
        for record in records:
            message = loads(record.value)
            scope = message["exchange"], message["channel"], message["symbol"]
            hold((*scope, message.get("seq")), record.offset)

    return take


TAKES = {"heartbeats": newest_heartbeats, "market": first_messages}


async def measure(
    brokers: str, topic: str, partitions: int, messages: int, take: Take
) -> dict[str, float]:
    """Seconds and seconds of CPU time from the first fetch to the last record."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=brokers, enable_auto_commit=False, auto_offset_reset="earliest"
    )
    await consumer.start()
    consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
    seen = 0
    started, cpu = time.perf_counter(), time.process_time()
    while seen < messages:
        for records in (await consumer.getmany(timeout_ms=500)).values():
            take(records)
            seen += len(records)
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    await consumer.stop()
    return {"messages": seen, "seconds": seconds, "cpu_seconds": cpu}


def main() -> None:
    brokers, topic, partitions, messages, what = sys.argv[1:]
    uvloop.install()
    result = asyncio.run(measure(brokers, topic, int(partitions), int(messages), TAKES[what]()))
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
