"""What becomes of a dead letter when it is looked at again, and what it looks like when sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from aiokafka.structs import TopicPartition

from heartbeat_stream.core.heartbeat import Heartbeat
from heartbeat_stream.recovery.traces import REPLAYED_AT, REPLAYED_FROM, trace
from heartbeat_stream.recovery.verdicts import Judged, Verdict, bounds_of, judge, made_key, sent_key
from heartbeat_stream.settings import Settings

NOW_MS = 1_800_000_000_000
TP = TopicPartition("heartbeat.dead-letter", 3)
GOOD = b'{"hotel_id":7,"room_id":"101","ts_ms":1800000000000}'
HEARTBEAT = Heartbeat(7, "101", NOW_MS)


@dataclass
class Letter:
    value: bytes | None = GOOD
    key: bytes | None = b"7:101"
    offset: int = 5
    timestamp: int = NOW_MS
    timestamp_type: int = 0
    headers: Sequence[tuple[str, bytes | None]] = field(
        default_factory=lambda: [
            ("reason", b"not-json"),
            ("source-topic", b"heartbeat"),
            ("source-partition", b"1"),
            ("source-offset", b"17"),
        ]
    )

    def with_headers(self, **headers: bytes) -> Letter:
        changed = {**dict(self.headers), **{k.replace("_", "-"): v for k, v in headers.items()}}
        return Letter(self.value, self.key, headers=list(changed.items()))


def judged(
    letter: Letter,
    *,
    keyed: bool = False,
    ledger: set[bytes] | None = None,
    again: bool = False,
) -> Judged:
    settings = Settings(source_keyed=keyed)
    bounds = bounds_of(settings, NOW_MS)
    return judge(settings, TP, letter, bounds, ledger or set(), again=again)


@pytest.mark.parametrize(
    ("letter", "verdict"),
    [
        (Letter(), Verdict.SEND),
        (Letter(key=None), Verdict.SEND),
        (Letter(value=b"{"), Verdict.BAD),
        (Letter(value=None), Verdict.BAD),
        (Letter(value=GOOD.replace(b"1800000000000", b"1800000300001")), Verdict.BAD),
        (Letter().with_headers(original_length=b"100000"), Verdict.CUT),
        (Letter().with_headers(source_topic=b"heartbeat-stream-repartition"), Verdict.FOREIGN),
        (Letter(headers=[]), Verdict.FOREIGN),
        (Letter().with_headers(source_topic=b"\xff"), Verdict.FOREIGN),
        (Letter().with_headers(source_partition=b"x"), Verdict.ASTRAY),
        (Letter().with_headers(source_partition=b"-1"), Verdict.ASTRAY),
        (Letter().with_headers(source_partition=b"9" * 5000), Verdict.ASTRAY),
        (Letter(headers=[("source-topic", b"heartbeat")]), Verdict.SEND),
        (Letter().with_headers(reason=b"row-refused"), Verdict.WRITE),
        (Letter(b"{}").with_headers(reason=b"row-refused"), Verdict.BAD),
    ],
)
def test_what_becomes_of_it(letter: Letter, verdict: Verdict) -> None:
    found = judged(letter)
    assert found.verdict is verdict
    assert found.heartbeat == (HEARTBEAT if verdict in (Verdict.SEND, Verdict.WRITE) else None)


def test_a_keyed_source_takes_the_rooms_own_key_alone() -> None:
    assert judged(Letter(), keyed=True).verdict is Verdict.SEND
    assert judged(Letter(key=b"07:101"), keyed=True).verdict is Verdict.BAD
    assert judged(Letter(key=None), keyed=True).verdict is Verdict.BAD


def test_what_was_sent_is_told_by_where_its_source_record_stood() -> None:
    ledger = {sent_key(TP, Letter())}
    # However often that became a dead letter, and whatever for.
    assert judged(Letter(offset=6, timestamp=NOW_MS + 1), ledger=ledger).verdict is Verdict.DONE
    assert judged(Letter().with_headers(reason=b"x"), ledger=ledger).verdict is Verdict.DONE
    for other in ({"source_offset": b"18"}, {"source_partition": b"2"}):
        assert judged(Letter().with_headers(**other), ledger=ledger).verdict is Verdict.SEND
    # The topic was deleted and made anew: another one stands there.
    assert judged(Letter(GOOD + b" "), ledger=ledger).verdict is Verdict.SEND
    # The record was sent, and then the database refused its row.
    refused = Letter().with_headers(reason=b"row-refused")
    assert judged(refused, ledger=ledger).verdict is Verdict.WRITE
    assert judged(refused, ledger={sent_key(TP, refused)}).verdict is Verdict.DONE


def test_letters_that_do_not_tell_where_their_record_stood_are_told_apart() -> None:
    letter = Letter(headers=[("source-topic", b"heartbeat")])
    ledger = {sent_key(TP, letter)}
    assert judged(letter, ledger=ledger).verdict is Verdict.DONE
    other = Letter(offset=6, headers=letter.headers)
    assert judged(other, ledger=ledger).verdict is Verdict.SEND


def test_what_comes_back_is_sent_once_more_only_when_told_to() -> None:
    ledger = {made_key("heartbeat", 1, 17, GOOD)}
    assert judged(Letter(), ledger=ledger).verdict is Verdict.BACK
    assert judged(Letter(), ledger=ledger, again=True).verdict is Verdict.SEND
    assert judged(Letter().with_headers(source_offset=b"18"), ledger=ledger).verdict is Verdict.SEND
    ledger.add(sent_key(TP, Letter()))
    assert judged(Letter(), ledger=ledger, again=True).verdict is Verdict.DONE


def test_a_reason_that_is_none_of_ours_is_not_shown() -> None:
    assert judged(Letter().with_headers(reason=b"\x1b[2J" * 1000)).reason == "unknown"


def test_a_letter_that_tells_no_reason_has_one_all_the_same() -> None:
    assert judged(Letter(headers=[("source-topic", b"heartbeat")])).reason == "unknown"


def test_a_trace_takes_the_place_of_an_earlier_one() -> None:
    first = trace([("x", None), ("y", b"1")], "heartbeat", 1, 2)
    assert first[:3] == [("x", b""), ("y", b"1"), (REPLAYED_FROM, b"heartbeat/1/2")]
    again = trace(first, "heartbeat", 3, 4)
    assert [name for name, _ in again] == ["x", "y", REPLAYED_FROM, REPLAYED_AT]
    assert dict(again)[REPLAYED_FROM] == b"heartbeat/3/4"
