"""What is a heartbeat and what is not: the acceptance cases, and the edges of each rule."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from heartbeat_stream.core.heartbeat import (
    Bounds,
    Heartbeat,
    Rejected,
    canonical_key_matches,
    decode,
    parse_key,
    room_key,
)
from heartbeat_stream.core.reasons import DETAIL_MAX, Reason

NOW = 1_700_000_000_000
BOUNDS = Bounds(1_420_070_400_000, NOW + 300_000)
CASES = json.loads((Path(__file__).parents[1] / "cases" / "heartbeats.json").read_text("utf-8"))
BOM = b"\xef\xbb\xbf"


def verdict(value: bytes, bounds: Bounds = BOUNDS) -> Heartbeat | Reason:
    """What becomes of the value; checks what must hold for every rejection."""
    try:
        return decode(value, bounds)
    except Rejected as error:
        rejected = error
    assert 0 < len(rejected.detail) <= DETAIL_MAX
    assert rejected.detail.isascii()
    assert rejected.detail.isprintable()
    return rejected.reason


def record(more: bytes = b"", **fields: str) -> bytes:
    """A good heartbeat with some fields replaced by the given JSON text, and more after them."""
    good = {
        "hotel_id": "7",
        "room_id": '"101"',
        "device_id": '"dev-1"',
        "ts_ms": str(NOW),
        "status": "1",
    }
    pairs = ",".join(f'"{name}":{text}' for name, text in (good | fields).items())
    return b"{" + pairs.encode() + more + b"}"


# --- the acceptance cases


def case_value(case: dict[str, Any]) -> bytes:
    """The bytes of an acceptance case, its placeholders filled in for the time ``NOW``."""
    if "value_hex" in case:
        return bytes.fromhex(case["value_hex"])
    text = case["value"].replace("{T.0}", f"{NOW}.0").replace("{S}", str(NOW // 1000))
    return re.sub(r"\{T([+-]\d+)?\}", lambda m: str(NOW + int(m[1] or 0)), text).encode()


# A tombstone has no value: whoever consumes skips it before there is anything to decode.
@pytest.mark.parametrize(
    "case", [c for c in CASES if c["outcome"] != "skipped"], ids=lambda case: case["name"]
)
def test_acceptance_case(case: dict[str, Any]) -> None:
    outcome = verdict(case_value(case))
    if case["outcome"] == "row":
        hotel, room, device, ts_offset, status = case["row"]
        assert outcome == Heartbeat(hotel, room, NOW + ts_offset, device, status)
    else:
        assert case["outcome"] == "dead-letter"
        assert isinstance(outcome, Reason)


# --- spellings that are accepted, field by field


@pytest.mark.parametrize(
    ("text", "hotel"),
    [
        ("0", 0),
        ("-0", 0),
        ("32767", 32767),
        ('"0"', 0),
        ('"007"', 7),
        ('"32767"', 32767),
        ('"\\u0037"', 7),
        ('"' + "0" * 5000 + '7"', 7),
    ],
)
def test_hotel_accepted(text: str, hotel: int) -> None:
    assert verdict(record(hotel_id=text)) == Heartbeat(hotel, "101", NOW, "dev-1", 1)


@pytest.mark.parametrize(
    ("text", "room"),
    [
        ('"x"', "x"),
        ('" A b "', " A b "),
        ('"007"', "007"),
        ('"1:2"', "1:2"),
        ('"\\u5927\\u5385"', "大厅"),
        ('"\\ud83d\\ude00"', "😀"),
        ('"e\\u0301"', "e\u0301"),
        ('"\\n\\u0001\x7f"', "\n\x01\x7f"),
        ('"\\\\u0000"', "\\u0000"),
        ('"' + "大" * 255 + '"', "大" * 255),
        ('"' + "😀" * 255 + '"', "😀" * 255),
        ("6010", "6010"),
        ("-5", "-5"),
        ("-0", "0"),
        ("9" * 255, "9" * 255),
        ("-" + "9" * 254, "-" + "9" * 254),
    ],
)
def test_room_accepted(text: str, room: str) -> None:
    assert verdict(record(room_id=text)) == Heartbeat(7, room, NOW, "dev-1", 1)


@pytest.mark.parametrize(
    ("text", "device"), [('""', ""), ("null", None), ('"' + "😀" * 255 + '"', "😀" * 255)]
)
def test_device_accepted(text: str, device: str | None) -> None:
    assert verdict(record(device_id=text)) == Heartbeat(7, "101", NOW, device, 1)


@pytest.mark.parametrize(
    ("text", "ts_ms"),
    [
        (f'"{NOW}"', NOW),
        (f'"00{NOW}"', NOW),
        ('"' + "0" * 5000 + f'{NOW}"', NOW),
        (f"{NOW}.0", NOW),
        ("1.7e12", NOW),
        ("1.7E+12", NOW),
        ("17000000000000e-1", NOW),
        (str(BOUNDS.min_ts_ms), BOUNDS.min_ts_ms),
        (str(BOUNDS.max_ts_ms), BOUNDS.max_ts_ms),
        (f"{BOUNDS.min_ts_ms}.0", BOUNDS.min_ts_ms),
        (f'"{BOUNDS.max_ts_ms}"', BOUNDS.max_ts_ms),
    ],
)
def test_time_accepted(text: str, ts_ms: int) -> None:
    outcome = verdict(record(ts_ms=text))
    assert outcome == Heartbeat(7, "101", ts_ms, "dev-1", 1)
    assert isinstance(outcome, Heartbeat)
    assert type(outcome.ts_ms) is int


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("null", None),
        ("-32768", -32768),
        ("32767", 32767),
        ('"-32768"', -32768),
        ('"32767"', 32767),
        ('"-0"', 0),
        ('"-' + "0" * 5000 + '12"', -12),
    ],
)
def test_status_accepted(text: str, status: int | None) -> None:
    assert verdict(record(status=text)) == Heartbeat(7, "101", NOW, "dev-1", status)


# --- spellings that are rejected, field by field

NEVER_A_FIELD = ["true", "false", "{}", "[]", "[1]", "1.5", "1e400", "-1e400"]
NEVER_DIGITS = ['""', '" 7"', '"7 "', '"+7"', '"7\\n"', '"0x7"', '"1_0"', '"1e3"', '"٧"', '"²"']
HUGE = "9" * 5000


@pytest.mark.parametrize(
    "text",
    NEVER_A_FIELD
    + NEVER_DIGITS
    + ["7.0", "7e0", "-1", "32768", '"-7"', '"-0"', '"32768"', '"7.0"', HUGE, f'"{HUGE}"'],
)
def test_hotel_rejected(text: str) -> None:
    assert verdict(record(hotel_id=text)) == Reason.BAD_HOTEL_ID


@pytest.mark.parametrize(
    "text",
    [
        *NEVER_A_FIELD,
        *('""', "7.0", '"a\\u0000"', '"\\ud800"', '"\\udc00\\ud800"', '"' + "大" * 256 + '"'),
        *("9" * 256, "-" + "9" * 255, "9" * 4000, HUGE, "-" + HUGE),
    ],
)
def test_room_rejected(text: str) -> None:
    assert verdict(record(room_id=text)) == Reason.BAD_ROOM_ID


@pytest.mark.parametrize(
    "text", [*NEVER_A_FIELD, "7", "7.0", '"a\\u0000"', '"\\udfff"', '"' + "d" * 256 + '"']
)
def test_device_rejected(text: str) -> None:
    assert verdict(record(device_id=text)) == Reason.BAD_DEVICE_ID


@pytest.mark.parametrize(
    ("text", "reason"),
    [(text, Reason.BAD_TS_MS) for text in NEVER_A_FIELD + NEVER_DIGITS]
    + [
        (f'"-{NOW}"', Reason.BAD_TS_MS),
        (f'"{NOW}.0"', Reason.BAD_TS_MS),
        ('"1.7e12"', Reason.BAD_TS_MS),
        (f"{NOW}.5", Reason.BAD_TS_MS),
        ("0", Reason.TS_TOO_OLD),
        ("-1", Reason.TS_TOO_OLD),
        ("-1e308", Reason.TS_TOO_OLD),
        ("-" + HUGE, Reason.TS_TOO_OLD),
        (str(NOW // 1000), Reason.TS_TOO_OLD),
        (str(BOUNDS.min_ts_ms - 1), Reason.TS_TOO_OLD),
        (f'"{BOUNDS.min_ts_ms - 1}"', Reason.TS_TOO_OLD),
        (str(BOUNDS.max_ts_ms + 1), Reason.TS_TOO_NEW),
        (f"{BOUNDS.max_ts_ms + 1}.0", Reason.TS_TOO_NEW),
        ("1e308", Reason.TS_TOO_NEW),
        (HUGE, Reason.TS_TOO_NEW),
        (f'"{HUGE}"', Reason.TS_TOO_NEW),
    ],
)
def test_time_rejected(text: str, reason: Reason) -> None:
    assert verdict(record(ts_ms=text)) == reason


@pytest.mark.parametrize(
    "text",
    NEVER_A_FIELD
    + NEVER_DIGITS
    + ["1.0", "-32769", "32768", '"32768"', '"--1"', '"-"', '"- 1"', HUGE, f'"-{HUGE}"'],
)
def test_status_rejected(text: str) -> None:
    assert verdict(record(status=text)) == Reason.BAD_STATUS


@pytest.mark.parametrize("name", ["hotel_id", "room_id", "ts_ms"])
def test_a_required_field_may_neither_be_missing_nor_null(name: str) -> None:
    assert verdict(record(b',"%s":null' % name.encode())) == Reason.MISSING_FIELD
    assert verdict(record().replace(name.encode(), b"other")) == Reason.MISSING_FIELD


# --- the document around the fields

GOOD = Heartbeat(7, "101", NOW, "dev-1", 1)


@pytest.mark.parametrize(
    "value",
    [
        BOM + record(),
        BOM + b"\r\n\t " + record() + b" \n",
        record().replace(b"hotel_id", b"hotel\\u005fid"),
        # unknown fields: whatever is JSON
        record(b',"x":null'),
        record(b',"x":"' + b"x" * 1_200_000 + b'"'),
        record(b',"x":' + b"[" * 500 + b"]" * 500),
        record(b',"x":1e400,"y":-1E-400'),
        record(b',"x":' + HUGE.encode()),
        record(b',"x":"\\ud800","\\udc00":"\\ud800\\u0041"'),
        record(b',"x":"\\u0000"'),
        record(',"大":"厅"'.encode()),
        record(b',"":{"hotel_id":8,"room_id":"no"}'),
        # of a duplicated key the last value counts, whatever came before
        record(b',"hotel_id":7', hotel_id="8"),
        record(b',"hotel_id":7', hotel_id="true"),
        record(b',"hotel_id":7', hotel_id="[[{}]]"),
        record(b',"room_id":"101"', room_id="null"),
        record(b',"room_id":"101"', room_id='"\\u0000"'),
        record(b',"room_id":"101"', room_id='"' + "x" * 300 + '"'),
        record(b',"ts_ms":%d' % NOW, ts_ms="5"),
        record(b',"stat\\u0075s":1', status='"x"'),
    ],
    ids=lambda value: ascii(value[:80]),
)
def test_document_accepted(value: bytes) -> None:
    assert verdict(value) == GOOD


def test_the_last_of_a_duplicated_key_counts_also_when_it_is_null_or_wrong() -> None:
    assert verdict(record(b',"device_id":null')) == Heartbeat(7, "101", NOW, None, 1)
    assert verdict(record(b',"hotel_id":null')) == Reason.MISSING_FIELD
    assert verdict(record(b',"status":true')) == Reason.BAD_STATUS


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", Reason.NOT_JSON),
        (b" ", Reason.NOT_JSON),
        (BOM, Reason.NOT_JSON),
        (b"\0", Reason.NOT_JSON),
        (BOM + BOM + record(), Reason.NOT_JSON),
        (b" " + BOM + record(), Reason.NOT_JSON),
        (record() + b"x", Reason.NOT_JSON),
        (record() + record(), Reason.NOT_JSON),
        (record() + b"\0", Reason.NOT_JSON),
        (record() + b"\x0c", Reason.NOT_JSON),
        (record()[:-1], Reason.NOT_JSON),
        (record(b","), Reason.NOT_JSON),
        (record(b"/**/"), Reason.NOT_JSON),
        (record(hotel_id="07"), Reason.NOT_JSON),
        (record(hotel_id="+7"), Reason.NOT_JSON),
        (record(hotel_id="'7'"), Reason.NOT_JSON),
        (record(room_id='"\t"'), Reason.NOT_JSON),
        (record(room_id='"\0"'), Reason.NOT_JSON),
        (record(ts_ms="NaN"), Reason.NOT_JSON),
        (record(ts_ms="-Infinity"), Reason.NOT_JSON),
        (record(b',"x":NaN'), Reason.NOT_JSON),
        (record(b',"x":[{"y":Infinity}]'), Reason.NOT_JSON),
        (record(b',"x":-Infinity'), Reason.NOT_JSON),
        (record(b',"hotel_id":7', hotel_id="NaN"), Reason.NOT_JSON),
        (record(b',"x":"\n"'), Reason.NOT_JSON),
        (record(b',"x":"\\x"'), Reason.NOT_JSON),
        (record(b',"x":"\\u12g4"'), Reason.NOT_JSON),
        (record(b',"x":[1,]'), Reason.NOT_JSON),
        (record(b',"x":1.'), Reason.NOT_JSON),
        (record().decode().encode("utf-16"), Reason.NOT_UTF8),
        (record().decode().encode("utf-16-le"), Reason.NOT_JSON),
        (record(b',"x":"\xff"'), Reason.NOT_UTF8),
        (record(b',"\xff":1'), Reason.NOT_UTF8),
        (record(b',"x":"\xed\xa0\x80"'), Reason.NOT_UTF8),
        (record(b',"x":"\xc0\x80"'), Reason.NOT_UTF8),
        (record(b',"room_id":"\xed\xa0\x80"'), Reason.NOT_UTF8),
        (record(b',"room_id":"\xe5\xa4"'), Reason.NOT_UTF8),
        (b"null", Reason.NOT_OBJECT),
        (b"7", Reason.NOT_OBJECT),
        (b"[" + record() + b"]", Reason.NOT_OBJECT),
        (b'"' + record().replace(b'"', b'\\"') + b'"', Reason.NOT_OBJECT),
        (record(b',"x":' + b"[" * 100_000 + b"]" * 100_000), Reason.TOO_DEEP),
        (record(b',"x":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000), Reason.TOO_DEEP),
        (b"[" * 100_000, Reason.TOO_DEEP),
    ],
    ids=lambda it: ascii(it[:80]) if isinstance(it, bytes) else str(it),
)
def test_document_rejected(value: bytes, reason: Reason) -> None:
    assert verdict(value) == reason


def test_a_detail_says_what_is_wrong_and_shows_little_of_the_value() -> None:
    with pytest.raises(Rejected, match=r"^bad-hotel-id: hotel_id is 40000, should be .*0 to 32767"):
        decode(record(hotel_id="40000"), BOUNDS)
    with pytest.raises(Rejected, match=r"^missing-field: hotel_id, ts_ms should be there"):
        decode(b'{"room_id":"1"}', BOUNDS)
    with pytest.raises(Rejected) as caught:
        decode(record(device_id='"' + "大\\n" * 500_000 + '"'), BOUNDS)
    assert "(1000000 characters)" in caught.value.detail
    assert caught.value.detail.count("u5927") < 10
    assert len(Rejected(Reason.NOT_JSON, "x" * 1000).detail) == DETAIL_MAX


def test_every_reason_has_a_code_and_a_sentence() -> None:
    for reason in Reason:
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", reason)
        assert reason.meaning.endswith(".")


# --- keys


@pytest.mark.parametrize(
    ("hotel", "room", "key"),
    [
        (7, "1:2", b"7:1:2"),
        (0, ":", b"0::"),
        (1309, "大会议室", "1309:大会议室".encode()),
        (2045, "6010", b"2045:6010"),
    ],
)
def test_key_of_a_room(hotel: int, room: str, key: bytes) -> None:
    assert room_key(hotel, room) == key
    assert parse_key(key) == (hotel, room)
    assert canonical_key_matches(key, Heartbeat(hotel, room, NOW))


@pytest.mark.parametrize(
    "key", [b"", b"7", b"7:", b":1", b"07:1", b"-1:1", b"+7:1", b"32768:1", b"7:\xff", b"7:\0"]
)
def test_what_is_no_key(key: bytes) -> None:
    with pytest.raises(ValueError, match="not a "):
        parse_key(key)


@pytest.mark.parametrize("key", [None, b"", b"07:1", b"7:1 ", b"7:2", b'"7:1"'])
def test_a_key_that_is_not_the_canonical_one(key: bytes | None) -> None:
    assert not canonical_key_matches(key, Heartbeat(7, "1", NOW))
