"""The yardstick: how fast one Python process can read the topic at all and keep the newest.

    python -m heartbeat_stream.bench.ceiling BROKERS TOPIC PARTITIONS MESSAGES

A process of its own, as the worker is. Plain aiokafka, ``getmany``, orjson, a dict; nothing is
kept durably, nothing is checked, nothing is written. Prints one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

import orjson
import uvloop
from aiokafka import AIOKafkaConsumer
from aiokafka.structs import TopicPartition


async def measure(brokers: str, topic: str, partitions: int, messages: int) -> dict[str, float]:
    """Seconds and seconds of CPU time from the first fetch to the last record."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=brokers, enable_auto_commit=False, auto_offset_reset="earliest"
    )
    await consumer.start()
    consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
    newest: dict[tuple[int, str], dict[str, int | str]] = {}
    seen = 0
    started, cpu = time.perf_counter(), time.process_time()
    loads, find = orjson.loads, newest.get
    while seen < messages:
        for records in (await consumer.getmany(timeout_ms=500)).values():
            for record in records:
                heartbeat = loads(record.value)
                room = heartbeat["hotel_id"], heartbeat["room_id"]
                known = find(room)
                if known is None or heartbeat["ts_ms"] > known["ts_ms"]:
                    newest[room] = heartbeat
            seen += len(records)
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    await consumer.stop()
    return {"messages": seen, "rooms": len(newest), "seconds": seconds, "cpu_seconds": cpu}


def main() -> None:
    brokers, topic, partitions, messages = sys.argv[1:]
    uvloop.install()
    result = asyncio.run(measure(brokers, topic, int(partitions), int(messages)))
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
