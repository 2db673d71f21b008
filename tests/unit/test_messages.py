"""The message filter: what is printed, and what is held."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from heartbeat_stream.core.messages import (
    Held,
    Window,
    content_key,
    decode_held,
    encode_held,
    expire,
    judge,
)
from heartbeat_stream.core.reasons import Reason, Rejected

WINDOW = 10_000
HOUR = 3_600_000


class Filter:
    """The filter with its state in a dict."""

    def __init__(self, key: Callable[[bytes], bytes] = content_key) -> None:
        self.key = key
        self.held: dict[bytes, Held] = {}
        self.lines: list[tuple[bytes, int]] = []

    def take(self, content: str | bytes, at_ms: int) -> bool:
        text = content.encode() if isinstance(content, str) else content
        key = self.key(text)
        decision = judge(text, at_ms, self.held.get(key, ()), WINDOW)
        self.held[key] = decode_held(encode_held(decision.held))
        if decision.ended is not None:
            self.lines.append((decision.ended.content, decision.ended.suppressed))
        return decision.printed

    def all(self, *arrivals: tuple[str, int]) -> str:
        """``p`` for printed, ``s`` for suppressed."""
        return "".join("p" if self.take(*each) else "s" for each in arrivals)


def test_the_worked_example() -> None:
    arrivals = [("Hello", 0), ("Hello", 5_000), ("Bye", 11_000), ("Hi", 11_000)]
    assert Filter().all(*arrivals) == "pspp"


def test_exactly_one_window_later_is_printed() -> None:
    assert Filter().all(("a", 0), ("a", 9_999), ("a", 10_000), ("a", 19_999)) == "psps"


def test_a_text_that_repeats_for_ever_is_printed_every_window() -> None:
    texts = Filter()
    printed = [at for at in range(0, 100_000, 500) if texts.take("again", at)]
    assert printed == list(range(0, 100_000, WINDOW))


def test_suppressed_ones_don_t_prolong_the_window() -> None:
    assert Filter().all(("a", 0), ("a", 6_000), ("a", 12_000)) == "psp"


def test_a_clock_that_steps_back_by_an_hour_suppresses_nothing_for_an_hour() -> None:
    texts = Filter()
    assert texts.take("a", HOUR)
    assert texts.all(("a", 0), ("a", 9_999), ("a", 10_000)) == "psp"
    assert texts.take("a", HOUR + 1), "and forward again"


def test_a_copy_that_comes_a_little_late_is_suppressed() -> None:
    assert Filter().all(("a", 20_000), ("a", 19_990), ("a", 10_001), ("a", 10_000)) == "pssp"


def test_a_backlog_is_judged_as_it_happened() -> None:
    """An hour that arrives within a moment: only timestamps count, and no clock is asked."""
    texts = Filter()
    assert sum(texts.take("a", at) for at in range(0, HOUR, 1_000)) == HOUR // WINDOW


def test_texts_are_compared_byte_by_byte() -> None:
    texts = ["a", "A", "a ", "", "é", "e\u0301", "a\n"]
    assert Filter().all(*((text, 0) for text in texts)) == "p" * len(texts)


def test_the_count_of_the_suppressed_comes_with_the_next_print() -> None:
    texts = Filter()
    texts.all(("a", 0), ("a", 1), ("a", 2), ("b", 3), ("a", WINDOW), ("b", 2 * WINDOW))
    assert texts.lines == [(b"a", 2)]


def test_the_count_of_the_suppressed_when_nothing_follows() -> None:
    held = judge(b"a", 5, judge(b"a", 0, (), WINDOW).held, WINDOW).held
    assert expire(held, WINDOW - 1, WINDOW) == (held, ())
    assert expire(held, WINDOW, WINDOW) == ((), (Window(b"a", 0, 1),))
    assert expire(held, -HOUR, WINDOW) == (held, ()), "only time that passes ends a window"


def test_short_texts_are_their_own_key_and_long_ones_have_a_hash() -> None:
    short, long = b"x" * 64, b"x" * 65
    assert content_key(short).endswith(short)
    assert len(content_key(long)) == 17
    assert content_key(b"#" + xxhash.xxh3_128_digest(long)) != content_key(long)
    assert content_key(b"") != content_key(b"=")


def test_a_collision_never_suppresses() -> None:
    """With a hash that is always the same, as no real one is."""
    texts = Filter(key=lambda content: b"#")
    long = [(name * 100, at) for at, name in enumerate("abcabcab")]
    assert texts.all(*long) == "pppsssss"
    ((held),) = texts.held.values()
    assert [window.suppressed for window in held] == [2, 2, 1]
    assert texts.take("b" * 100, WINDOW + 1)
    assert not texts.take("c" * 100, WINDOW + 1)
    (still,) = texts.held.values()
    assert len(expire(still, WINDOW + 1, WINDOW)[0]) == 2


def test_what_is_no_text() -> None:
    with pytest.raises(Rejected) as caught:
        judge(b"\xff", 0, (), WINDOW)
    assert caught.value.reason is Reason.NOT_UTF8


def test_windows_that_share_a_key_are_left_as_they_are() -> None:
    a, b, c = Window(b"a", 1, 3), Window(b"b", 2, 1), Window(b"c", 3)
    again = judge(b"b", 3, (a, b, c), WINDOW)
    assert again.held == (a, Window(b"b", 2, 2), c)
    printed = judge(b"b", 2 + WINDOW, (a, b, c), WINDOW)
    assert (printed.held, printed.ended) == ((a, Window(b"b", 2 + WINDOW), c), b)


def test_a_record_that_a_crash_brings_again_is_not_counted_as_suppressed() -> None:
    held: Held = ()
    seen = ""
    for at_ms, *source in (
        (0, 1, 50),  # printed
        (0, 1, 50),  # the print itself, again
        (5, 1, 60),  # suppressed, and so are the next two
        (5, 2, 7),
        (6, 1, 61),
        (0, 1, 50),  # and all of them again
        (5, 1, 60),
        (5, 2, 7),
        (6, 1, 61),
    ):
        decision = judge(b"a", at_ms, held, WINDOW, (source[0], source[1]))
        seen += "r" if decision.repeated else "p" if decision.printed else "s"
        held = decode_held(encode_held(decision.held))
    assert seen == "prsssrrrr"
    assert held[0].suppressed == 3
    # A topic that was made anew counts from 0 again: what is to be printed is printed.
    again = judge(b"a", WINDOW, held, WINDOW, (1, 0))
    assert again.printed
    assert again.held == (Window(b"a", WINDOW, 0, {1: 0}),)


def test_what_was_held_before_places_were() -> None:
    assert decode_held(msgspec.msgpack.encode([[b"a", 5, 2]])) == (Window(b"a", 5, 2),)


def test_what_is_held_as_bytes() -> None:
    held = (Window(b"a", -5, 2, {0: 2**40, 7: 1}), Window("é".encode(), 2**62))
    assert decode_held(encode_held(held)) == held
    for data in (b"", b"\x90\x90", encode_held(held)[:-1]):
        with pytest.raises(ValueError, match="not what is held"):
            decode_held(data)


arrivals = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c" * 100]), st.integers(0, 60_000)), max_size=30
)


@settings(max_examples=300)
@given(arrivals, st.booleans())
def test_a_text_is_printed_exactly_if_its_last_print_is_a_window_away(
    given_arrivals: list[tuple[str, int]], in_order: bool
) -> None:
    texts, prints = Filter(), dict[str, int]()
    for text, at in sorted(given_arrivals, key=lambda each: each[1] * in_order):
        printed = texts.take(text, at)
        assert printed is (text not in prints or abs(at - prints[text]) >= WINDOW)
        if printed:
            prints[text] = at
