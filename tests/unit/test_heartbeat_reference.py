"""Reading heartbeats, compared with a slow reading of the same rules that shares no code with it.

The documents are built from JSON text, so that they hold what no JSON library would write.
"""

import json
from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from heartbeat_stream.core.heartbeat import (
    Bounds,
    Heartbeat,
    Rejected,
    decode,
    parse_key,
    room_key,
)
from tests.support.slow_heartbeat import is_text, slow_decode

NOW = 1_700_000_000_000
BOUNDS = Bounds(1_420_070_400_000, NOW + 300_000)


# --- documents, mostly good, some hostile

KEYS = ["hotel_id", "room_id", "device_id", "ts_ms", "status"]
# fmt: off
NUMBERS = [
    "0", "-0", "1", "7", "-7", "07", "+7", "7.0", "7.5", "7e0", "-1", "32767", "32768",
    "-32768", "-32769", "1e400", "-1e400", "1e-400", "1.", ".5", "-", "NaN", "Infinity",
    "-Infinity", "1700000000000", "1700000000000.0", "1.7e12", "17e11", "170000000000000e-2",
    "1700000300000", "1700000300001", "1420070400000", "1420070399999", "1700000000",
    "18446744073709551616",
]
STRINGS = [
    '""', '"7"', '"007"', '"-7"', '"--7"', '"+7"', '"7.0"', '" 7"', '"٧"', '"²"', '"-0"',
    '"32767"', '"32768"', '"-32768"', '"-32769"', '"101"', '"1:2"', '"大会议室"', '"1700000000000"',
    '"01700000000000"', '"1700000300001"', r'"\u0037"', r'"\u0000"', r'"\\u0000"', r'"\ud800"',
    r'"\udc00"', r'"\ud83d\ude00"', r'"\ud800\u0041"', r'"\n"', r'"\x"', r'"\u12g4"', r'"\"',
]
# fmt: on
LONG_NUMBERS = st.sampled_from([255, 256, 300, 301, 4300, 4301, 5000]).map(lambda n: "9" * n)
LONG_STRINGS = st.builds(
    lambda char, n: f'"{char * n}"',
    st.sampled_from("a0大😀"),
    st.sampled_from([1, 254, 255, 256, 5000]),
)
OTHERS = ["null", "true", "false", "{}", "[]", '{"a":[1,{}]}', "[1,]", "", "nul"]
ANYTHING = st.sampled_from(NUMBERS + STRINGS + OTHERS) | LONG_NUMBERS | LONG_STRINGS
GOOD = {
    "hotel_id": st.integers(0, 32767).map(str) | st.integers(0, 32767).map('"{:06}"'.format),
    "room_id": st.text(max_size=8).map(json.dumps) | st.integers().map(str),
    "device_id": st.text(max_size=8).map(lambda text: json.dumps(text, ensure_ascii=False)),
    "ts_ms": st.integers(NOW - 9, NOW + 9).map(str) | st.integers(NOW, NOW + 9).map('"{}"'.format),
    "status": st.integers(-9, 9).map(str) | st.integers(-9, 9).map('"{}"'.format),
}
KNOWN_PAIRS = [
    st.tuples(st.just(f'"{key}"'), value) for key in KEYS for value in (GOOD[key], ANYTHING)
]
UNKNOWN_KEYS = [
    '"x"',
    '""',
    '"大"',
    '"hotel\\u005fid"',
    '"\\ud800"',
    '"status "',
    '"\\x"',
    "x",
    "1",
]
UNKNOWN_PAIRS = st.tuples(st.sampled_from(UNKNOWN_KEYS), ANYTHING)


def join(pairs: Iterable[tuple[str, str]], space: str) -> str:
    text = f"{space},{space}".join(f"{key}{space}:{space}{value}" for key, value in pairs)
    return f"{{{space}{text}{space}}}"


COMPLETE = st.tuples(*(st.tuples(st.just(f'"{key}"'), GOOD[key]) for key in KEYS))
EXTRAS = st.lists(st.one_of(*KNOWN_PAIRS, UNKNOWN_PAIRS), max_size=3)
DOCUMENTS = st.builds(
    lambda before, complete, drop, after, space: join(
        [*before, *(pair for i, pair in enumerate(complete) if i != drop), *after], space
    ),
    EXTRAS,
    COMPLETE,
    st.integers(0, 40),
    EXTRAS,
    st.sampled_from(["", "", "", " ", "\r\n\t", "\u00a0"]),
)
WRAPPED = st.builds(
    lambda before, document, after: f"{before}{document}{after}".encode(),
    st.sampled_from(["", "", "", "", "\ufeff", "\ufeff\ufeff", " ", "\0", "[", '"']),
    DOCUMENTS,
    st.sampled_from(["", "", "", "", " \n", "\0", "}", "]", '"', "x", "\ufeff"]),
)
DAMAGED = st.builds(
    lambda value, at, cut, put: value[: at % len(value)] + put + value[at % len(value) + cut :],
    WRAPPED,
    st.integers(0, 10_000),
    st.integers(0, 2),
    st.binary(max_size=3) | st.sampled_from([b"\xed\xa0\x80", b"\xff", b"\\", b'"', b"\n"]),
)


def fast_decode(value: bytes) -> Heartbeat | None:
    try:
        return decode(value, BOUNDS)
    except Rejected:
        return None


@settings(max_examples=3000, deadline=None)
@given(DOCUMENTS.map(str.encode) | WRAPPED | DAMAGED | st.binary(max_size=40))
def test_the_fast_reading_equals_the_slow_one(value: bytes) -> None:
    assert fast_decode(value) == slow_decode(value, BOUNDS)


@settings(max_examples=300, deadline=None)
@given(DOCUMENTS)
def test_an_encoded_heartbeat_reads_as_itself(document: str) -> None:
    heartbeat = fast_decode(document.encode())
    if heartbeat is not None:
        again = {name: getattr(heartbeat, name) for name in KEYS}
        for ascii_only in (True, False):
            value = json.dumps(again, ensure_ascii=ascii_only).encode()
            assert decode(value, BOUNDS) == heartbeat


@given(st.integers(0, 32767), st.text(min_size=1, max_size=255).filter(is_text))
def test_a_key_names_one_room(hotel: int, room: str) -> None:
    assert parse_key(room_key(hotel, room)) == (hotel, room)
