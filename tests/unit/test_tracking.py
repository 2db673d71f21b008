"""Tracking events: which have an identity, and what is the same for two of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heartbeat_stream.core.reasons import Reason, Rejected
from heartbeat_stream.core.tracking import (
    OTHER,
    BoundedNames,
    TrackingEvent,
    marked,
    read_event,
    unmarked,
)

EVENT: dict[str, Any] = {
    "type": "track",
    "event": "view",
    "distinct_id": "u-1",
    "_track_id": 312_555_777,
    "time": 1_700_000_000_123,
    "_flush_time": 1_700_000_004_000,
    "lib": {"$lib": "js", "$lib_version": "1.26"},
    "properties": {"price": 1.5},
}


def event(**changed: Any) -> TrackingEvent:
    """An event with fields of other values; ``...`` leaves a field out."""
    fields = {**EVENT, **{name.removeprefix("F"): value for name, value in changed.items()}}
    kept = {name: value for name, value in fields.items() if value is not ...}
    return read_event(json.dumps(kept).encode(), project="shop")


def identity(**changed: Any) -> bytes | None:
    return event(**changed).identity()


def test_what_is_read() -> None:
    found = event(remark="beta")
    assert found == TrackingEvent(
        project="shop",
        distinct_id="u-1",
        type="track",
        event="view",
        lib="js",
        track_id="312555777",
        time="1700000000123",
        time_ms=1_700_000_000_123,
        flush_time_ms=1_700_000_004_000,
        remark="beta",
    )


def test_the_flush_time_and_the_content_are_no_part_of_it() -> None:
    assert identity() is not None
    assert identity() == identity(_flush_time=9) == identity(_flush_time=..., properties={"a": 1})
    assert identity() == identity(event="other") == identity(lib=None, remark="x")


@pytest.mark.parametrize("name", ["distinct_id", "_track_id", "time"])
def test_each_of_the_four_fields_counts(name: str) -> None:
    assert identity(**{name: 77}) not in (None, identity())
    assert identity(**{name: ...}) is None
    assert identity(**{name: None}) is None
    for odd in ([1], {"a": 1}, True, "", "x" * 2_000):
        assert identity(**{name: odd}) is None, odd


def test_the_project_counts() -> None:
    value = json.dumps(EVENT).encode()
    assert read_event(value, project="a").identity() != read_event(value, project="b").identity()


def test_numbers_and_their_texts_are_the_same() -> None:
    assert identity() == identity(_track_id="312555777") == identity(time="1700000000123")
    assert identity() == identity(_track_id=312555777.0)


@pytest.mark.parametrize("zero", [0, "0", 0.0, -0.0, "0.0", "00", ""])
def test_a_track_id_or_a_time_of_zero_is_none(zero: object) -> None:
    assert identity(_track_id=zero) is None
    assert identity(time=zero) is None


def test_a_time_that_is_no_number_is_none() -> None:
    assert identity(time="yesterday") is None
    assert event(time="yesterday").time_ms is None


@pytest.mark.parametrize("other", ["profile_set", "item_set", "Track", "", None, 7])
def test_other_types_have_no_identity(other: object) -> None:
    assert event(type=other).identity(signup=True) is None


def test_signups_have_one_by_setting() -> None:
    signup = event(type="track_signup")
    assert signup.identity() is None
    assert signup.identity(signup=True) == identity()


def test_numbers_beyond_all_bounds_spoil_nothing() -> None:
    value = json.dumps({**EVENT, "extra": 1}).replace('"extra": 1', '"extra": 1e99999')
    assert read_event(value.encode(), project="shop").identity() == identity()
    huge = [event(_track_id=int("9" * 400)), event(_track_id=int("9" * 399 + "8"))]
    assert huge[0].identity() not in (None, huge[1].identity())
    assert event(time=10**30).time_ms is None
    for number in ("1e99999", "-1e-99999"):
        odd = json.dumps({**EVENT, "time": 1}).replace('"time": 1', f'"time": {number}')
        assert read_event(odd.encode()).identity() is None


def test_the_sdk_is_found_where_sdks_put_it() -> None:
    assert event(lib={"$lib": "iOS"}).lib == "iOS"
    assert event(lib=..., **{"$lib": {"$lib": "MiniProgram"}}).lib == "MiniProgram"
    assert event(lib="js", properties={"$lib": "python"}).lib == "python"
    assert event(lib=[], properties=3).lib == ""
    surrogate = json.dumps({**EVENT, "extra": "\ud800"}).encode()
    assert read_event(surrogate).lib == "js", "the careful way reads the same"


def test_project_and_remark_of_the_report_come_first() -> None:
    value = json.dumps({**EVENT, "project": "own", "remark": "dev"}).encode()
    assert (read_event(value).project, read_event(value).remark) == ("own", "dev")
    given = read_event(value, project="shop", remark="live")
    assert (given.project, given.remark) == ("shop", "live")
    assert read_event(json.dumps(EVENT).encode()).project == "default"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", Reason.NOT_JSON),
        (b"{", Reason.NOT_JSON),
        (b"[]", Reason.NOT_OBJECT),
        (b"\xff", Reason.NOT_UTF8),
        (b"[" * 100_000, Reason.TOO_DEEP),
    ],
)
def test_what_is_no_event(value: bytes, reason: Reason) -> None:
    with pytest.raises(Rejected) as caught:
        read_event(value)
    assert caught.value.reason is reason


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False)
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=5
)
names = st.sampled_from([*EVENT, "project", "remark", "$lib", "x"])


@given(st.dictionaries(names, values))
def test_any_object_is_an_event(fields: dict[str, Any]) -> None:
    found = read_event(json.dumps(fields).encode())
    key = found.identity(signup=True)
    assert key is None or key.startswith(found.partition_key)
    careful = json.dumps({**fields, "zz": "\ud800"}).encode()
    assert read_event(careful) == found


four = st.tuples(st.text(min_size=1), st.text(min_size=1), st.integers(), st.integers(min_value=1))


def key_of(parts: tuple[str, str, int, int]) -> bytes | None:
    project, distinct_id, track_id, time = parts
    fields = {**EVENT, "distinct_id": distinct_id, "_track_id": track_id, "time": time}
    return read_event(json.dumps(fields).encode(), project=project).identity()


@given(four, four)
def test_no_two_different_lists_collide(
    one: tuple[str, str, int, int], other: tuple[str, str, int, int]
) -> None:
    first, second = key_of(one), key_of(other)
    if first is not None and second is not None:
        assert (first == second) == (one == other)


@given(st.none() | st.text())
def test_marking_is_done_once(remark: str | None) -> None:
    once = marked(remark)
    assert once.startswith("du-")
    assert marked(once) == once
    assert once in (remark, f"du-{remark or ''}")
    assert marked(unmarked(once)) == once or once.startswith("du-du-")


def test_unmarking() -> None:
    assert unmarked("du-beta") == "beta"
    assert unmarked("beta") == "beta"
    assert unmarked(None) is None
    assert unmarked("du-") is None, "as it was before it was marked"
    assert unmarked("") == ""
    assert unmarked("du-du-beta") == "beta", "or it would lose another one each time"


def test_labels_are_bounded() -> None:
    label = BoundedNames(2)
    assert [label(name) for name in ("a", "b", "c", "a", "x" * 99)] == ["a", "b", OTHER, "a", OTHER]
    assert BoundedNames(9)("line\nbreak") == OTHER
