"""What becomes of a report that Kafka refuses: nothing of it counts as seen."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import cast

import pytest

from heartbeat_stream.collector.figures import Figures
from heartbeat_stream.collector.intake import Intake, Rules
from heartbeat_stream.collector.judging import Judge
from heartbeat_stream.collector.report import Report, decode_report, encode_report
from heartbeat_stream.collector.seen.memory import MemoryStore
from heartbeat_stream.collector.sender import NotSent, Sender
from heartbeat_stream.collector.unpacking import Bounds
from heartbeat_stream.core.tracking_record import envelope_of
from heartbeat_stream.streaming.producer import OutRecord
from tests.support.sdk import event

BOUNDS = Bounds(10**7, 10**6)


class OddKafka:
    """Takes what goes to some partitions, and refuses what goes to the others."""

    def __init__(self, refuses: set[int]) -> None:
        self.partitions = {"tracking": 4, "dead": 1}
        self.refuses = refuses
        self.has: list[tuple[int, str]] = []

    def send(
        self, topic: str, partition: int, records: Sequence[OutRecord]
    ) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if partition in self.refuses:
            future.set_exception(NotSent("refused"))
            return future
        for record in records:
            verdict = envelope_of(record.headers or []).verdict
            self.has.append((json.loads(record.value or b"")["_track_id"], str(verdict)))
        future.set_result(None)
        return future


def intake(kafka: OddKafka, *, drop: bool) -> Intake:
    store = MemoryStore(claim_ms=10**6, window_ms=10**6, most=10**6, now_ms=lambda: 0)
    rules = Rules("tracking", "dead", drop, False, BOUNDS, 0.05)
    judge = Judge(store, wait_s=10)
    return Intake(rules, cast("Sender", kafka), judge, Figures())


def report_of(events: list[dict[str, object]]) -> Report:
    return Report(1, "shop", None, (json.dumps(events).encode(),))


@pytest.mark.parametrize("drop", [False, True])
async def test_what_kafka_refuses_is_the_first_when_it_comes_again(drop: bool) -> None:
    kafka = OddKafka(refuses={0, 2})
    taking = intake(kafka, drop=drop)
    events = [event(number) for number in range(40)]
    report = report_of(events)
    taken = await taking.take(report, report.parts, [], 10)
    assert kafka.has, "some partitions took theirs"
    assert taken.unsent
    assert not taken.nothing_sent
    rest = [decode_report(encode_report(piece.report(report))) for piece in taken.unsent]
    assert sum(len(json.loads(one.parts[0])) for one in rest) == 40 - len(kafka.has)
    kafka.refuses = set()
    for one in rest:
        assert not (await taking.take(one, one.parts, [], 10)).unsent
    wanted = sorted((one["_track_id"], "first") for one in events)
    assert sorted(kafka.has) == wanted, "each once, and none taken for a duplicate"


async def test_nothing_is_sent_of_a_report_that_all_refuse() -> None:
    kafka = OddKafka(refuses={0, 1, 2, 3})
    report = report_of([event(number) for number in range(5_000)])
    taken = await intake(kafka, drop=False).take(report, report.parts, [], 10)
    assert taken.nothing_sent
    assert taken.total == 5_000


async def test_a_claim_of_another_that_never_ends_holds_nobody_for_ever() -> None:
    kafka = OddKafka(refuses=set())
    taking = intake(kafka, drop=True)
    store = MemoryStore(claim_ms=10**6, window_ms=10**6, most=10**6, now_ms=lambda: 0)
    taking._judge = Judge(store, wait_s=10)
    kafka.refuses = {0, 1, 2, 3}
    store.release = _forgets  # type: ignore[method-assign]  # a collector that was killed here
    report = report_of([event(1)])
    await taking.take(report, report.parts, [], 10)
    kafka.refuses = set()
    assert not (await taking.take(report, report.parts, [], 10)).unsent
    assert kafka.has == [(event(1)["_track_id"], "unjudged")]


async def _forgets(keys: Sequence[bytes], owner: bytes) -> None:
    """As if nobody had been there to release."""
