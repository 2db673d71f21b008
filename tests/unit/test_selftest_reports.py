"""What the self-test sends is what SDKs send, and the truth about it is that of the rules."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from heartbeat_stream.collector.report import read_report
from heartbeat_stream.collector.sdk_forms import FORMS
from heartbeat_stream.collector.unpacking import Bounds, events_of, unpack
from heartbeat_stream.core.tracking import read_event
from heartbeat_stream.selftest.places import request_of
from heartbeat_stream.selftest.reports import (
    PROJECT,
    REMARK,
    Kind,
    Report,
    Rows,
    event_name,
    make_reports,
    users_of,
    wanted_rows,
)
from heartbeat_stream.selftest.tracking import Outcome, door_url, what_is_wrong
from heartbeat_stream.settings import Settings

REPORTS = make_reports("run", 1_780_000_000_000)


def values(report: Report) -> list[bytes]:
    """The events that a collector finds in it."""
    request = request_of(report)
    received = read_report(request.query, request.body, 1)
    assert (received.project, received.remark) == (PROJECT, REMARK)
    bounds = Bounds(10**7, 10**4)
    return [value for part in received.parts for value in events_of(unpack(part, bounds), bounds)]


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: f"{report.kind}-{report.form}")
def test_a_collector_finds_the_events_that_were_sent(report: Report) -> None:
    found = [msgspec.json.decode(value) for value in values(report)]
    assert found == list(report.events)
    assert {one["event"] for one in found} == {event_name(report.kind)}
    assert {one["distinct_id"] for one in found} <= set(users_of("run"))


def test_the_truth_is_that_of_the_rules() -> None:
    seen: set[bytes] = set()
    rows, marked = Counter[Kind](), Counter[Kind]()
    for report in REPORTS:
        for value in values(report):
            identity = read_event(value, PROJECT).identity()
            rows[report.kind] += 1
            marked[report.kind] += identity in seen
            if identity is not None:
                seen.add(identity)
    for kind in Kind:
        assert wanted_rows(REPORTS, "mark")[kind] == Rows(rows[kind], marked[kind])
        assert wanted_rows(REPORTS, "drop")[kind] == Rows(rows[kind] - marked[kind], 0)
    assert marked[Kind.REPEATED] > 0
    assert sum(marked.values()) == marked[Kind.REPEATED]


def test_all_forms_are_tried_and_every_user_comes_last() -> None:
    assert {report.form for report in REPORTS} == set(FORMS)
    last = REPORTS[-len(users_of("run")) :]
    assert {report.events[0]["distinct_id"] for report in last} == set(users_of("run"))
    assert {report.kind for report in last} == {Kind.SINGLE}


def test_two_runs_share_no_event() -> None:
    assert not set(users_of("run")) & set(users_of("another"))


def test_what_it_looks_like_where_rows_do_not_agree() -> None:
    settings = Settings(tracking_policy="drop")
    right = Outcome(REPORTS, "drop", wanted_rows(REPORTS, "drop"))
    assert right.agrees
    assert not any("WRONG" in line for line in right.lines())
    other = right._replace(found=wanted_rows(REPORTS, "mark"))
    assert not other.agrees
    assert [line.split()[0] for line in other.lines() if "WRONG" in line] == ["repeated"]
    assert "those of the policy mark" in what_is_wrong(other, settings)
    some = right._replace(found={**right.found, Kind.BATCH: Rows(1, 0)})
    assert "do not agree" in what_is_wrong(some, settings)
    none = right._replace(found=dict.fromkeys(Kind, Rows(0, 0)))
    assert "is a worker running" in what_is_wrong(none, settings)


def test_where_a_collector_of_these_settings_is() -> None:
    assert door_url(Settings()) == "http://127.0.0.1:8106"
    assert door_url(Settings(collect_host="0.0.0.0", collect_port=1)) == "http://127.0.0.1:1"
    assert door_url(Settings(collect_host="::")) == "http://[::1]:8106"
