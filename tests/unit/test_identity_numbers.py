"""Numbers, times and joined keys against exact arithmetic and naive models."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from decimal import Decimal, localcontext

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import Raw

from heartbeat_stream.core.identity.joining import PART_MAX, join, part_of
from heartbeat_stream.core.identity.json_values import raw_number
from heartbeat_stream.core.identity.numbers import EXPONENT_MAX, fixed_point, is_number
from heartbeat_stream.core.identity.rules import TimeRule, TimeUnit
from heartbeat_stream.core.identity.times import MAX_US, microseconds
from heartbeat_stream.core.reasons import DETAIL_MAX, Reason, Rejected

US = TimeUnit.US


@st.composite
def spelled(draw: st.DrawFn) -> str:
    """A JSON number of few digits, so that two of them are often equal."""
    whole = draw(st.sampled_from(["0", "1", "10", "100", "12", "123456789012345678901"]))
    fraction = draw(st.sampled_from(["", ".0", ".1", ".10", ".01", ".00000000000000001"]))
    exponent = draw(st.sampled_from(["", "e0", "E+1", "e-1", "e2", "E-02", "e1100", "e-1100"]))
    return draw(st.sampled_from(["", "-"])) + whole + fraction + exponent


@given(spelled(), spelled())
def test_two_spellings_have_one_form_exactly_if_the_numbers_are_equal(one: str, two: str) -> None:
    assert (fixed_point(one) == fixed_point(two)) is (Decimal(one) == Decimal(two))


@given(spelled())
def test_the_form_is_the_number_without_exponent_and_needless_zeros(text: str) -> None:
    form = fixed_point(text)
    assert Decimal(form) == Decimal(text)
    assert is_number(form)
    assert "e" not in form.lower()
    assert fixed_point(form) == form
    assert form == "0" or not form.startswith("-0") or "." in form


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("1.10", "1.1"),
        ("1.0", "1"),
        ("-0.0", "0"),
        ("-0", "0"),
        ("0e5", "0"),
        ("0.1", "0.1"),
        ("0.10000000000000001", "0.10000000000000001"),
        ("12e-1", "1.2"),
        ("1.25e1", "12.5"),
        ("-5E+2", "-500"),
        ("9007199254740993", "9007199254740993"),
    ],
)
def test_forms(text: str, form: str) -> None:
    assert fixed_point(text) == form


def test_integers_of_any_length_are_exact() -> None:
    digits = "1234567890" * 1_000
    assert fixed_point(digits) == digits
    assert fixed_point(f"{digits}.500") == f"{digits}.5"


def test_the_last_microsecond_is_that_of_the_year_9999() -> None:
    last = datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)
    assert (last - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) == MAX_US


@pytest.mark.parametrize("exponent", ["999999999", "-999999999", "9" * 100_000, "1101", "-1101"])
def test_a_number_bomb_is_refused_at_once(exponent: str) -> None:
    started = time.perf_counter()
    with pytest.raises(Rejected) as caught:
        fixed_point(f"1e{exponent}")
    assert time.perf_counter() - started < 1
    assert caught.value.reason is Reason.NUMBER_TOO_LARGE
    assert len(caught.value.detail) <= DETAIL_MAX


def test_the_largest_exponents_are_written_out() -> None:
    assert fixed_point(f"1e{EXPONENT_MAX}") == "1" + "0" * EXPONENT_MAX
    assert fixed_point(f"1e-{EXPONENT_MAX}") == "0." + "0" * (EXPONENT_MAX - 1) + "1"
    assert fixed_point("1e0000000000000001") == "10"


@pytest.mark.parametrize("text", ["", "+1", "01", ".5", "1.", "1e", "0x1", "1_0", "٣", "NaN", " 1"])
def test_what_is_no_number(text: str) -> None:
    assert not is_number(text)


UNIT_DIGITS = {TimeUnit.S: 0, TimeUnit.MS: 3, TimeUnit.US: 6, TimeUnit.NS: 9}


@example(TimeUnit.NS, TimeUnit.US, Decimal(MAX_US).scaleb(-6), True)
@example(TimeUnit.NS, TimeUnit.US, Decimal(MAX_US + 1).scaleb(-6), True)
@given(
    st.sampled_from(TimeUnit),
    st.sampled_from([TimeUnit.S, TimeUnit.MS, TimeUnit.US]),
    st.decimals(0, 10**12, allow_nan=False, allow_infinity=False, places=9),
    st.booleans(),
)
def test_a_time_is_the_same_number_of_microseconds_in_every_unit(
    unit: TimeUnit, precision: TimeUnit, seconds: Decimal, as_text: bool
) -> None:
    with localcontext(prec=60):
        scaled = seconds.scaleb(UNIT_DIGITS[unit])
        step = 10 ** (6 - UNIT_DIGITS[precision])
        expected = int(seconds.scaleb(6)) // step * step
        text = f"{scaled:f}"
    convert = microseconds(TimeRule("ts", unit, precision))
    if expected > MAX_US:
        with pytest.raises(Rejected):
            convert(text)
    else:
        assert convert(text if as_text else raw_number(text)) == expected
        if scaled == scaled.to_integral_value():
            assert convert(int(scaled)) == expected


@pytest.mark.parametrize(
    "value",
    [True, "", "now", "0x10", -1, "-1", Raw(b"-0.5"), [], {}, MAX_US + 1, 10**400, "9" * 65],
)
def test_what_is_no_time(value: object) -> None:
    with pytest.raises(Rejected) as caught:
        microseconds(TimeRule("ts", US))(value)
    assert caught.value.reason is Reason.BAD_TIME
    assert "ts" in caught.value.detail


def test_a_unit_is_not_guessed() -> None:
    """Milliseconds that are declared as microseconds are taken as such."""
    assert microseconds(TimeRule("ts", US))(1_700_000_000_123) == 1_700_000_000_123
    assert microseconds(TimeRule("ts", TimeUnit.MS))(1_700_000_000_123) == 1_700_000_000_123_000


parts = st.lists(st.text(alphabet="01:é,", max_size=4), max_size=4)


@given(parts, parts)
def test_no_two_lists_of_parts_have_one_key(one: list[str], two: list[str]) -> None:
    assert (join(one) == join(two)) is (one == two)
    assert join(one + two) == join(one) + join(two)


@given(st.lists(st.text(), max_size=5))
def test_a_key_can_be_taken_apart(given_parts: list[str]) -> None:
    rest, found = join(given_parts), []
    while rest:
        length, _, rest = rest.partition(b":")
        found.append(rest[: int(length)].decode())
        rest = rest[int(length) :]
    assert found == given_parts


def test_a_part_is_one_for_a_number_and_its_text() -> None:
    assert part_of(5, "seq") == part_of("5", "seq") == "5"
    assert part_of(raw_number("5.0"), "seq") == "5"
    assert part_of("05", "seq") == "05"
    assert part_of(10**40, "seq") == str(10**40)


@pytest.mark.parametrize(
    "value", [True, [], {}, "x" * (PART_MAX + 1), 10 ** (PART_MAX + 1), "\ud800"]
)
def test_what_is_no_part(value: object) -> None:
    with pytest.raises(Rejected) as caught:
        part_of(value, "seq")
    assert caught.value.reason is Reason.BAD_KEY_FIELD


def test_an_integer_that_python_would_not_write_out_is_no_part() -> None:
    with pytest.raises(Rejected):
        part_of(10**9_999, "seq")
