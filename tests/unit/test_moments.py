"""Points in time and in a topic, as an operator writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heartbeat_stream.recovery.moments import (
    AtOffset,
    AtTime,
    Earliest,
    Moment,
    is_reversed,
    parse_moment,
    parse_time,
    shown_time,
)

NOW_MS = 1_800_000_000_000  # 2027-01-15T08:00:00Z


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("earliest", Earliest()),
        ("0", AtOffset(0)),
        ("0042", AtOffset(42)),
        ("20270115", AtOffset(20_270_115)),
        ("2027-01-15T08:00:00Z", AtTime(NOW_MS)),
        ("2027-01-15T16:00:00+08:00", AtTime(NOW_MS)),
        ("2027-01-15 08:00", AtTime(NOW_MS)),
        ("2027-01-15T08:00:00.250", AtTime(NOW_MS + 250)),
        ("2027-01-15", AtTime(NOW_MS - 8 * 3_600_000)),
        ("45s", AtTime(NOW_MS - 45_000)),
        ("90m", AtTime(NOW_MS - 5_400_000)),
        ("2h", AtTime(NOW_MS - 7_200_000)),
        ("3d", AtTime(NOW_MS - 259_200_000)),
        ("999999999d", AtTime(0)),
    ],
)
def test_what_is_understood(text: str, moment: Moment) -> None:
    assert parse_moment(text, NOW_MS) == moment


@pytest.mark.parametrize(
    "text",
    [
        *("", "latest", "Earliest", "-1", "+1", "1.5", "2h ", "2 h", "2w", "h", "-2h", "٣", "٣h"),
        *("1969-12-31", "2027-02-30", "2027-01-15T25:00", "tomorrow", "1" * 19),
    ],
)
def test_what_is_not(text: str) -> None:
    with pytest.raises(ValueError, match=r"wrong: want earliest, an offset, a time|beyond every"):
        parse_moment(text, NOW_MS)


@pytest.mark.parametrize(
    ("start", "end", "reversed_"),
    [
        (AtTime(1), AtTime(2), False),
        (AtTime(2), AtTime(2), True),
        (AtTime(2), AtTime(1), True),
        (AtOffset(1), AtOffset(2), False),
        (AtOffset(2), AtOffset(1), True),
        (AtOffset(5), AtTime(1), False),
        (AtTime(5), AtOffset(1), False),
        (Earliest(), AtOffset(1), False),
        (AtTime(1), Earliest(), True),
    ],
)
def test_an_end_before_its_beginning(start: Moment, end: Moment, reversed_: bool) -> None:
    assert is_reversed(start, end) is reversed_


def test_an_offset_is_no_time() -> None:
    for text in ("20270115", "1800000000000", "earliest"):
        with pytest.raises(ValueError, match="want a time"):
            parse_time(text, NOW_MS)


@given(st.integers(0, 253_402_300_799_999))
def test_what_is_shown_is_understood(ms: int) -> None:
    assert parse_time(shown_time(ms).removesuffix(" UTC"), NOW_MS) == ms


def test_times_beyond_every_calendar_can_be_shown() -> None:
    assert shown_time(10**18) == f"{10**18} ms"


@given(st.text(max_size=30))
def test_nothing_else_is_raised(text: str) -> None:
    said = ""
    try:
        parse_moment(text, NOW_MS)
    except ValueError as error:
        said = str(error)
    assert len(said.splitlines()) <= 1
