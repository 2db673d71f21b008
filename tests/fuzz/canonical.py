"""What may come of any bytes whose canonical form is asked for."""

from __future__ import annotations

from heartbeat_stream.core.identity.canonical import CanonicalForm
from heartbeat_stream.core.identity.rules import FingerprintRule, TimeRule, TimeUnit
from heartbeat_stream.core.reasons import DETAIL_MAX, Reason, Rejected
from tests.support.slow_canonical import slow_form

__all__ = ["DICTIONARY", "check", "seeds"]

_form = CanonicalForm(FingerprintRule(1, exclude=("route",)), TimeRule("ts", TimeUnit.US)).of

#: What a fuzzer finds by itself only late.
DICTIONARY = [
    *('"ts"', '"route"', '"seq"', "null", "true", "NaN", "1.10", "1e2", "1E-2", "-0", "-0.0"),
    *("0.10000000000000001", "9007199254740993", "1e1100", "1e1101", "1e999999999", "\ufeff"),
    *(r"\u0000", r"\ud800", r"\ud83d\ude00", "[[[[", '{"a":', "1700000000000000", '"1.5"'),
]


def check(value: bytes) -> None:
    """Require a form or a documented reason, and what a slow reading of the rules comes to."""
    made = _made(value)
    try:
        expected = slow_form(value, "route", "ts")
    except RecursionError:
        return  # the slow one gives up earlier
    if made is None and value.count(b"[") + value.count(b"{") > 500:
        return  # deeper than has to be followed
    assert made == expected


def _made(value: bytes) -> bytes | None:
    try:
        made = _form(value)
    except Rejected as error:
        rejected = error
    else:
        assert _form(made) == made
        return made
    assert rejected.reason in Reason
    assert 0 < len(rejected.detail) <= DETAIL_MAX, rejected.detail
    assert rejected.detail.isascii(), rejected.detail
    assert rejected.detail.isprintable(), rejected.detail
    return None


def seeds() -> list[bytes]:
    """Messages as exchanges send them, and some that they should not."""
    texts = (
        '{"exchange":"binance","symbol":"BTCUSDT","channel":"depth","ts":1700000000000123,'
        '"seq":7,"bids":[["42000.50","1.10"]],"asks":[[42000.60,2e-3]],"route":"a"}',
        '{"ts":"1700000000000123.9","price":1.10,"size":-0.0,"note":null,"é":"\\u00e9\\n"}',
        '\ufeff{"a":{"b":{"c":[1,1.0,1e0,10e-1,123456789012345678901234567890]}},"a":{}}',
        '{"a":1e999999999}',
    )
    return [text.encode() for text in texts]
