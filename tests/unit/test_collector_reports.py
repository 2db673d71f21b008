"""Reports: where their parts are found, and how they are unpacked within bounds."""

from __future__ import annotations

import base64
import gzip
import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heartbeat_stream.collector.report import (
    Report,
    decode_report,
    encode_report,
    read_report,
)
from heartbeat_stream.collector.unpacking import Bounds, events_of, unpack
from heartbeat_stream.core.reasons import Reason, Rejected
from heartbeat_stream.local.sdk_reports import encoded, form_body
from tests.support.sdk import event

BOUNDS = Bounds(unpacked_bytes=1_000_000, events=1_000)


def events(report: Report, bounds: Bounds = BOUNDS) -> list[Any]:
    return [
        json.loads(one) for part in report.parts for one in events_of(unpack(part, bounds), bounds)
    ]


@pytest.mark.parametrize("zipped", [False, True])
def test_all_places_of_a_report(zipped: bool) -> None:
    one, two = event(1), event(2)
    text = encoded([one, two], zipped=zipped)
    assert events(read_report({"data_list": text}, b"", 7)) == [one, two]
    assert events(read_report({"data": encoded(one, zipped=zipped)}, b"", 7)) == [one]
    assert events(read_report({}, form_body([one, two], zipped=zipped), 7)) == [one, two]
    assert events(read_report({}, form_body(one, zipped=zipped), 7)) == [one]
    assert events(read_report({}, json.dumps([one]).encode(), 7)) == [one]
    assert events(read_report({}, b" \n" + json.dumps(one).encode(), 7)) == [one]


def test_what_comes_along() -> None:
    report = read_report({"project": "shop", "remark": ""}, b"{}", 7)
    assert (report.project, report.remark, report.received_at_ms) == ("shop", None, 7)
    assert read_report({}, b"crc=1&gzip=0", 7).parts == ()


def test_spellings_of_base64() -> None:
    data = json.dumps({"t": "~~~???>>>"}).encode()
    plain = base64.b64encode(data)
    assert b"+" in plain or b"/" in plain
    for text in (plain, plain.rstrip(b"="), base64.urlsafe_b64encode(data), plain + b"\r\n"):
        assert unpack(text, BOUNDS) == data
    assert unpack(plain.replace(b"+", b" "), BOUNDS) == data, "a + that became a space"


@given(st.builds(Report, st.integers(0, 2**50), st.none() | st.text(), st.none(), st.just((b"a",))))
def test_a_report_survives_the_spool(report: Report) -> None:
    assert decode_report(encode_report(report)) == report


@pytest.mark.parametrize(
    "part", [b"%%%", b"abc!", b"\xff\xfe", base64.b64encode(b"\x1f\x8bnothing"), b"A"]
)
def test_bad_base64_and_bad_gzip(part: bytes) -> None:
    with pytest.raises(Rejected) as caught:
        unpack(part, BOUNDS)
    assert caught.value.reason is Reason.BAD_REPORT


def test_gzip_that_was_cut_off() -> None:
    part = base64.b64encode(gzip.compress(b'{"a": 1}' * 100)[:-9])
    with pytest.raises(Rejected, match="cut off"):
        unpack(part, BOUNDS)


def test_a_gzip_bomb_takes_no_more_memory_than_the_bound() -> None:
    bomb = base64.b64encode(gzip.compress(b"[" + b" " * 30_000_000 + b"]"))
    tracemalloc.start()
    try:
        with pytest.raises(Rejected, match="unpacks to more than 1000000 bytes"):
            unpack(bomb, BOUNDS)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 5_000_000


def test_too_many_events() -> None:
    document = b"[" + b",".join([b"{}"] * 1_001) + b"]"
    with pytest.raises(Rejected, match="more than 1000 events"):
        events_of(document, BOUNDS)
    odd = document[:-1] + b', "\\ud800"]'
    with pytest.raises(Rejected, match="more than 1000 events"):
        events_of(odd, BOUNDS)


entries = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(st.lists(entries, max_size=8), st.sampled_from([None, 1]))
def test_each_entry_stays_as_it_was_written(document: list[Any], indent: int | None) -> None:
    text = json.dumps(document, indent=indent).encode()
    assert [json.loads(one) for one in events_of(text, BOUNDS)] == document
    odd = json.dumps([*document, "\ud800"], indent=indent).encode()
    assert [json.loads(one) for one in events_of(odd, BOUNDS)] == [*document, "\ud800"]


@pytest.mark.parametrize(
    "document", [b"[", b"[1,]", b"[1 2]", b"[1],", b'["\\ud800"', b"[" * 9_999]
)
def test_a_list_that_is_broken(document: bytes) -> None:
    with pytest.raises(Rejected) as caught:
        events_of(document, BOUNDS)
    assert caught.value.reason in (Reason.NOT_JSON, Reason.TOO_DEEP)


def test_a_body_that_is_nothing_at_all() -> None:
    with pytest.raises(Rejected):
        read_report({}, b"\x00\xff", 7)
    with pytest.raises(Rejected):
        read_report({}, b"&".join([b"a=1"] * 200), 7)
