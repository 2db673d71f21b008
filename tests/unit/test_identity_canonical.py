"""The canonical form: equal by the rules exactly if the forms are equal."""

from __future__ import annotations

import json
import time
from typing import Any

import msgspec
import pytest
import xxhash
from hypothesis import example, given, settings
from hypothesis import strategies as st

from heartbeat_stream.core.identity.canonical import CanonicalForm
from heartbeat_stream.core.identity.fingerprint import fingerprint_of
from heartbeat_stream.core.identity.rules import (
    FingerprintRule,
    HashWidth,
    Nulls,
    TimeRule,
    TimeUnit,
)
from heartbeat_stream.core.reasons import DETAIL_MAX, Reason, Rejected
from tests.support.json_spelling import documents, meaning, spell

BOM = b"\xef\xbb\xbf"


def form(text: str | bytes, time_rule: TimeRule | None = None, **rule: Any) -> bytes:
    value = text.encode() if isinstance(text, str) else text
    return CanonicalForm(FingerprintRule(1, **rule), time_rule).of(value)


@settings(max_examples=300, deadline=None)
@given(st.data(), documents, documents, st.sampled_from(Nulls), st.booleans())
def test_equal_by_the_rules_exactly_if_the_forms_are_equal(
    data: st.DataObject, one: Any, two: Any, nulls: Nulls, as_numbers: bool
) -> None:
    draw = data.draw
    two = draw(st.sampled_from([one, two]))
    numeric = ("px",) if as_numbers else ()
    rule = FingerprintRule(1, exclude=("recv_ts",), nulls=nulls, numeric_strings=numeric)
    of = CanonicalForm(rule).of
    forms, meanings = [], []
    for document in (one, two):
        text = spell(draw, document).encode()
        forms.append(of(text))
        assert of(BOM + text) == forms[-1], "the careful way comes to the same"
        meanings.append(_meaning(document, nulls, as_numbers))
    assert (forms[0] == forms[1]) is (meanings[0] == meanings[1])


def _meaning(document: dict[str, Any], nulls: Nulls, as_numbers: bool) -> object:
    drop = nulls is Nulls.ABSENT
    kept = {key: value for key, value in document.items() if key != "recv_ts"}
    prices = {"px": kept.pop("px")} if "px" in kept else {}
    return (
        meaning(kept, drop_nulls=drop),
        meaning(prices, drop_nulls=drop, numeric=as_numbers),
    )


@settings(max_examples=50, deadline=None)
@given(st.data(), documents)
def test_the_form_is_json_that_is_its_own_form(data: st.DataObject, document: Any) -> None:
    once = form(spell(data.draw, document))
    assert form(once) == once
    assert list(json.loads(once)) == sorted(json.loads(once))


def test_the_form_of_a_message() -> None:
    text = """{"symbol": "BTCUSDT", "exchange": "binance", "seq": 7, "recv_ts": 99,
        "bids": [[42000.50, 1.10]], "asks": [], "note": null, "ts": 1700000000000.5}"""
    made = form(text, TimeRule("ts", TimeUnit.MS), exclude=("recv_ts",))
    assert made == (
        b'{"asks":[],"bids":[[42000.5,1.1]],"exchange":"binance","seq":7,"symbol":"BTCUSDT",'
        b'"ts":1700000000000500}'
    )


@pytest.mark.parametrize(
    ("one", "two", "same", "rule"),
    [
        ('{"p": 1.5, "q": 1}', '{"q": 1, "p": 1.50}', True, {}),
        ('{"p": 1.5}', '{"p": "1.5"}', False, {}),
        ('{"p": 1.5}', '{"p": "1.50"}', True, {"numeric_strings": ("p",)}),
        ('{"p": [["1.5", 2]]}', '{"p": [[1.50, "2.0"]]}', True, {"numeric_strings": ("p",)}),
        ('{"p": "007"}', '{"p": 7}', False, {"numeric_strings": ("p",)}),
        ('{"p": 1.10}', '{"p": 1.1}', True, {}),
        ('{"p": 0.1}', '{"p": 0.10000000000000001}', False, {}),
        ('{"p": 1e2}', '{"p": 100}', True, {}),
        ('{"p": -0.0}', '{"p": 0}', True, {}),
        ('{"p": 9007199254740992}', '{"p": 9007199254740993}', False, {}),
        ('{"p": null}', "{}", True, {}),
        ('{"p": null}', "{}", False, {"nulls": Nulls.KEPT}),
        ('{"p": {"q": null}}', '{"p": {}}', True, {}),
        ('{"p": [null]}', '{"p": []}', False, {}),
        ('{"p": [1, 2]}', '{"p": [2, 1]}', False, {}),
        ('{"p": true}', '{"p": 1}', False, {}),
        ('{"p": 1, "p": 2}', '{"p": 2}', True, {}),
        ('{"p": 1, "route": "a"}', '{"p": 1, "route": "b"}', True, {"exclude": ("route",)}),
        (r'{"p": "\u00e9"}', '{"p": "é"}', True, {}),
        ('{"p": "e\u0301"}', '{"p": "é"}', False, {}),
    ],
)
def test_what_is_one(one: str, two: str, same: bool, rule: dict[str, Any]) -> None:
    assert (form(one, **rule) == form(two, **rule)) is same


def test_times_of_declared_units_are_microseconds() -> None:
    times = (TimeRule("made", TimeUnit.S), TimeRule("sent", TimeUnit.NS))
    made = form('{"made": "1.5", "sent": 1700000000000000999}', times=times)
    assert made == b'{"made":1500000,"sent":1700000000000000}'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"p": 1e999999999}', Reason.NUMBER_TOO_LARGE),
        ('{"p": [[-1E-999999999]]}', Reason.NUMBER_TOO_LARGE),
        ('{"p": NaN}', Reason.NOT_JSON),
        ("", Reason.NOT_JSON),
        ('{"p": 01}', Reason.NOT_JSON),
        ("[1]", Reason.NOT_OBJECT),
        (b'{"p": "\xff"}', Reason.NOT_UTF8),
        (r'{"p": "\ud800"}', Reason.BAD_TEXT),
        (r'{"\ud800": 1}', Reason.BAD_TEXT),
        ('{"p": ' + "[" * 100_000, Reason.TOO_DEEP),
        ('{"p": ' + "[" * 100_000 + "]" * 100_000 + "}", Reason.TOO_DEEP),
    ],
)
def test_what_has_no_form(text: str | bytes, reason: Reason) -> None:
    started = time.perf_counter()
    with pytest.raises(Rejected) as caught:
        form(text)
    assert caught.value.reason is reason
    assert len(caught.value.detail) <= DETAIL_MAX
    assert time.perf_counter() - started < 2


def test_a_declared_time_that_is_none_is_refused() -> None:
    with pytest.raises(Rejected) as caught:
        form('{"ts": "yesterday"}', TimeRule("ts", TimeUnit.US))
    assert caught.value.reason is Reason.BAD_TIME


@pytest.mark.parametrize("depth", [1, 500])
@pytest.mark.parametrize("leaf", ["1.50", '"1.50"', "null"])
def test_five_hundred_levels_can_be_followed(depth: int, leaf: str) -> None:
    text = '{"a":' * depth + leaf + "}" * depth
    assert form(text, numeric_strings=("a",)).count(b"{") == depth


def test_integers_of_thousands_of_digits_are_exact() -> None:
    for digits in ("1234567890" * 1_000, "1234567890" * 430):
        assert form(f'{{"n": {digits}}}') == b'{"n":%b}' % digits.encode()


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=60) | st.text(alphabet='{}[]":,.0123456789eE+-nul\\ \ud800').map(repr))
@example(b'{"a":1e5}')
def test_any_bytes_have_a_form_or_a_reason(given_value: bytes | str) -> None:
    value = given_value if isinstance(given_value, bytes) else given_value.encode()
    outcome = form_or_reason(value)
    if isinstance(outcome, bytes):
        assert isinstance(msgspec.json.decode(outcome), dict)
    else:
        assert outcome.detail.isascii()
        assert outcome.detail.isprintable()


def form_or_reason(value: bytes) -> bytes | Rejected:
    try:
        return form(value)
    except Rejected as rejected:
        return rejected


def test_the_hash_is_the_one_that_is_declared() -> None:
    value, made = b'{"p": 1.50}', b'{"p":1.5}'
    narrow = fingerprint_of(FingerprintRule(1), None)(value)
    wide = fingerprint_of(FingerprintRule(1, hash=HashWidth.XXH128), None)(value)
    assert narrow == xxhash.xxh64_digest(made)
    assert wide == xxhash.xxh3_128_digest(made)
