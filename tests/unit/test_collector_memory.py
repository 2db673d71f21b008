"""Seen events in memory: the protocol, and how it cleans itself."""

from __future__ import annotations

import tracemalloc

from heartbeat_stream.collector.budget import Budget
from heartbeat_stream.collector.seen.memory import ENTRY_BYTES, MemoryStore
from heartbeat_stream.collector.seen.store import Answer
from tests.support.seen_stores import keeps_to_the_protocol, one_claim_wins


class Times:
    now = 1_000_000

    def __call__(self) -> int:
        return self.now


def made(times: Times, most: int = 100_000) -> MemoryStore:
    return MemoryStore(claim_ms=1_000, window_ms=60_000, most=most, now_ms=times)


def key(number: int) -> bytes:
    return b"%020d" % number


async def test_the_protocol() -> None:
    await keeps_to_the_protocol(made(Times()))
    await one_claim_wins([made(Times())])


async def test_claims_and_what_was_seen_expire() -> None:
    times = Times()
    store = made(times)
    await store.claim(dict.fromkeys([key(1)], b"one"))
    times.now += 999
    assert await store.claim(dict.fromkeys([key(1)], b"two")) == [Answer.PENDING]
    times.now += 1
    assert await store.claim(dict.fromkeys([key(1)], b"two")) == [Answer.CLAIMED]
    await store.confirm([key(1)])
    times.now += 59_999
    assert await store.claim(dict.fromkeys([key(1)], b"two")) == [Answer.SEEN]
    await store.confirm([key(1)])  # a copy has come: the window begins anew
    times.now += 59_999
    assert await store.claim(dict.fromkeys([key(1)], b"two")) == [Answer.SEEN]
    times.now += 1
    assert await store.claim(dict.fromkeys([key(1)], b"two")) == [Answer.CLAIMED]


async def test_beyond_the_number_the_least_recently_active_goes() -> None:
    store = made(Times(), most=100)
    await store.confirm([key(number) for number in range(100)])
    await store.confirm([key(0)])
    await store.confirm([key(number) for number in range(100, 110)])
    assert len(store) == 100
    answers = await store.claim(dict.fromkeys([key(0), key(1), key(10), key(11)], b"one"))
    assert answers == [Answer.SEEN, Answer.CLAIMED, Answer.CLAIMED, Answer.SEEN]


async def test_it_is_never_cleaned_all_at_once() -> None:
    times = Times()
    store = made(times)
    await store.confirm([key(number) for number in range(2_500)])
    assert await store.clean() == 0
    times.now += 60_000
    await store.confirm([key(9_999)])
    assert [await store.clean() for _ in range(4)] == [1_000, 1_000, 500, 0]
    assert len(store) == 1


async def test_what_an_entry_takes() -> None:
    store = made(Times())
    tracemalloc.start()
    try:
        for first in range(0, 50_000, 1_000):
            keys = [key(number) for number in range(first, first + 1_000)]
            await store.claim(dict.fromkeys(keys, b"%012d" % first))
            await store.confirm(keys)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert ENTRY_BYTES / 3 < taken / 50_000 < ENTRY_BYTES


async def test_memory_is_lent_in_turn() -> None:
    budget = Budget(100)
    assert budget.take(60)
    assert not budget.take(60)
    await budget.wait(40)
    assert budget.in_use == 100
    budget.give_back(40)
    budget.give_back(60)
    assert budget.take(1_000), "more than there is counts as all of it"
    budget.give_back(1_000)
    assert budget.in_use == 0
