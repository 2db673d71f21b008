"""Whether a worker's rows and state are right: without that, no figure counts.

A measured worker is ended by SIGKILL. Another one takes over what it has left, with neither window
nor cooldown, so that everything pending is written at once. Then every row in the database, and
every entry in both changelogs, must be of the newest heartbeat that was sent for its room.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping

import asyncpg
from aiokafka import AIOKafkaConsumer
from aiokafka.structs import TopicPartition

from heartbeat_stream.bench.ground import Site
from heartbeat_stream.bench.load import heartbeat, key_of, room_of
from heartbeat_stream.bench.worker_process import BenchError, WorkerProcess
from heartbeat_stream.jobs.heartbeat_tables import (
    LATEST,
    WRITTEN,
    latest_version,
    read_stored,
    read_written,
    written_version,
)
from heartbeat_stream.streaming.fetching import FetchedRecord, fetch_raw_records

__all__ = ["read_changelog", "settle", "verify", "wait_until_written"]

_SETTLE_S = 300.0
_POLL_S = 0.1
_ROWS_AT_ONCE = 10_000

AT_ONCE = {"buffer_window_ms": "0", "cooldown_ms": "0", "checkpoint_ms": "1000"}
"""Settings with which a worker writes whatever is pending at once."""


async def verify(site: Site, newest: Mapping[int, int]) -> None:
    """Let a new worker finish a killed one's work, and compare. Raises BenchError.

    ``newest`` is the greatest ts_ms of each room, all of which is committed.
    """
    await settle(site)
    await _check_rows(site, newest)
    await _check_state(site, newest)


async def settle(site: Site) -> None:
    """Run a worker until nothing is pending, and end it in order. Raises BenchError."""
    with site.worker(**AT_ONCE) as worker:
        await asyncio.to_thread(worker.wait_until_ready)
        await wait_until_written(worker)
        await asyncio.to_thread(worker.stop)


async def wait_until_written(worker: WorkerProcess) -> None:
    """Return once the worker has nothing to write, and has made that durable. Raises BenchError.

    An end in order has a bound of time, which is not enough for a million rooms on a busy machine.
    """
    await _wait_for(worker, "heartbeat_rooms_pending", lambda pending: pending == 0)
    done = (await asyncio.to_thread(worker.metrics))["heartbeat_checkpoints_total"]
    # The one under way may have begun before the last write was acknowledged.
    await _wait_for(worker, "heartbeat_checkpoints_total", lambda now: now >= done + 2)


async def _wait_for(worker: WorkerProcess, metric: str, reached: Callable[[float], bool]) -> None:
    deadline = time.perf_counter() + _SETTLE_S
    while not reached((await asyncio.to_thread(worker.metrics))[metric]):
        worker.check()
        if time.perf_counter() > deadline:
            raise BenchError(f"{metric} is not what it should be after {_SETTLE_S:g} s")
        await asyncio.sleep(_POLL_S)


async def _check_rows(site: Site, newest: Mapping[int, int]) -> None:
    wrong = seen = 0
    connection = await asyncpg.connect(site.settings["HEARTBEAT_DATABASE_URL"])
    try:
        async with connection.transaction():
            rows = connection.cursor(
                f"SELECT hotel_id, room_id, ts_ms, device_id, status FROM {site.table.quoted}",
                prefetch=_ROWS_AT_ONCE,
            )
            async for row in rows:
                seen += 1
                room = room_of(row[0], row[1])
                expected = heartbeat(room, newest.get(room, 0))
                wrong += tuple(row) != (
                    expected.hotel_id,
                    expected.room_id,
                    expected.ts_ms,
                    expected.device_id,
                    expected.status,
                )
    finally:
        await connection.close()
    if wrong or seen != len(newest):
        raise BenchError(f"{site.app_id}: of {len(newest)} rows {seen} are there, {wrong} wrong")


async def _check_state(site: Site, newest: Mapping[int, int]) -> None:
    latest = await read_changelog(site, LATEST, latest_version)
    written = await read_changelog(site, WRITTEN, written_version)
    wrong = 0
    for room, ts_ms in newest.items():
        key, expected = key_of(room), heartbeat(room, ts_ms)
        stored, write = latest.get(key), written.get(key)
        if stored is None or write is None or read_written(write).ts_ms != ts_ms:
            wrong += 1
            continue
        found = read_stored(stored)
        wrong += (found.hotel_id, found.room_id, found.ts_ms, found.device_id, found.status) != (
            expected.hotel_id,
            expected.room_id,
            expected.ts_ms,
            expected.device_id,
            expected.status,
        )
    if wrong or not len(latest) == len(written) == len(newest):
        raise BenchError(
            f"{site.app_id}: the state of {wrong} of {len(newest)} rooms is wrong "
            f"({len(latest)} in {LATEST}, {len(written)} in {WRITTEN})"
        )


async def read_changelog(
    site: Site, table: str, version: Callable[[bytes], int]
) -> dict[bytes, bytes]:
    """What a table holds by its changelog alone: of each key the value of the greatest version."""
    state: dict[bytes, bytes] = {}
    versions: dict[bytes, int] = {}
    async for records in read_topic(
        site.settings["HEARTBEAT_BROKERS"], f"{site.app_id}-{table}-changelog", site.partitions
    ):
        for record in records:
            key, value = record.key or b"", record.value
            if value is None:
                raise BenchError(f"{site.app_id}: a tombstone in {table}")
            if version(value) >= versions.get(key, 0):
                versions[key], state[key] = version(value), value
    return state


async def read_topic(
    brokers: str, topic: str, partitions: int
) -> AsyncIterator[list[FetchedRecord]]:
    """All records of a topic, by batches."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=brokers, enable_auto_commit=False, auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        fetch_raw_records(consumer)
        unread = {TopicPartition(topic, number) for number in range(partitions)}
        consumer.assign(list(unread))
        while unread:
            for batches in (await consumer.getmany(*unread, timeout_ms=200)).values():
                for records in batches:
                    yield records
            for tp in list(unread):
                end = consumer.highwater(tp)
                if end is not None and await consumer.position(tp) >= end:
                    unread.discard(tp)
    finally:
        await consumer.stop()
