"""The two places through which the self-test reports: a collector's address, or the topic."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

import aiohttp

from heartbeat_stream.collector.events import Item, read_items, unpack_report
from heartbeat_stream.collector.report import read_report
from heartbeat_stream.collector.sdk_forms import SdkRequest, sdk_request
from heartbeat_stream.collector.unpacking import Bounds
from heartbeat_stream.config.urls import redact_url
from heartbeat_stream.core.partition import partition_for
from heartbeat_stream.core.tracking_record import Envelope, headers_of
from heartbeat_stream.recovery.cluster import open_producer
from heartbeat_stream.recovery.errors import RecoveryError
from heartbeat_stream.selftest.reports import PROJECT, REMARK, Kind, Report
from heartbeat_stream.settings import Settings
from heartbeat_stream.streaming.producer import BatchProducer, OutRecord
from heartbeat_stream.streaming.topic_admin import describe_topics, kafka_admin

__all__ = ["Place", "open_door", "open_topic"]

_ANSWER_S = 30.0


class Place(Protocol):
    """Where reports go in."""

    async def send(self, report: Report) -> None:
        """Return once it is taken in. Raises RecoveryError, and KafkaError, where it is not."""


def request_of(report: Report) -> SdkRequest:
    """A report as an SDK sends it: a single event as such, several as a list."""
    document = report.events[0] if report.kind is Kind.SINGLE else list(report.events)
    return sdk_request(report.form, document, project=PROJECT, remark=REMARK)


# -- at the door -----------------------------------------------------------------------------------


class _Door:
    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url
        self._shown = redact_url(url)

    async def send(self, report: Report) -> None:
        request = request_of(report)
        try:
            async with self._session.request(
                request.method,
                self._url + request.path,
                params=request.query,
                data=request.body or None,
                headers=request.headers,
            ) as answer:
                await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise RecoveryError(
                f"no collector answers at {self._shown} ({type(error).__name__}): start "
                "`heartbeat-stream collect`, or give its address with --url"
            ) from error
        if answer.status != 200:
            raise RecoveryError(
                f"{self._shown} answers {answer.status} to a report: is it a collector, and has "
                "its spool room?"
            )


@asynccontextmanager
async def open_door(url: str) -> AsyncIterator[Place]:
    """A collector, by its address without a path."""
    address = url.rstrip("/") if "://" in url else f"http://{url.rstrip('/')}"
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_ANSWER_S)) as session:
        yield _Door(session, address)


# -- behind Kafka ----------------------------------------------------------------------------------


class _Topic:
    """Writes what a collector writes that does not judge."""

    def __init__(self, producer: BatchProducer, settings: Settings, partitions: int) -> None:
        self._producer = producer
        self._topic = settings.tracking_topic
        self._partitions = partitions
        self._bounds = Bounds(settings.collect_unpacked_max_bytes, settings.collect_events_max)

    async def send(self, report: Report) -> None:
        at_ms = time.time_ns() // 1_000_000
        request = request_of(report)
        received = read_report(request.query, request.body, at_ms)
        documents, _ = unpack_report(received, self._bounds)
        reading = await read_items(received, documents, self._bounds, judged=False, signup=False)
        headers = headers_of(Envelope(received.project, received.remark, at_ms))
        shares: dict[int, list[Item]] = {}
        for item in reading.items:
            partition = partition_for(item.partition_key, self._partitions)
            shares.setdefault(partition, []).append(item)
        for partition, items in shares.items():
            records = [OutRecord(item.partition_key, item.value, headers) for item in items]
            await self._producer.publish(self._topic, partition, records, at_ms)


@asynccontextmanager
async def open_topic(settings: Settings) -> AsyncIterator[Place]:
    """The topic. Raises RecoveryError where there is none."""
    topic = settings.tracking_topic
    async with kafka_admin(settings) as admin:
        found = await describe_topics(admin, [topic])
    if topic not in found:
        raise RecoveryError(
            f"there is no topic {topic}: see HEARTBEAT_TRACKING_TOPIC, or create it with "
            "`heartbeat-stream init --jobs tracking`"
        )
    async with open_producer(settings) as producer:
        yield _Topic(producer, settings, found[topic].partitions)
