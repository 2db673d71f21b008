"""What every store of seen events has to do, whatever it is made of."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from heartbeat_stream.collector.seen.store import Answer, SeenStore
from tests.support.wait import wait_until_async

__all__ = ["CLAIM_MS", "keeps_to_the_protocol", "one_claim_wins", "seen_expires"]

#: Of stores whose clock is a real one: long enough for a busy machine, short enough to wait for.
CLAIM_MS = 3_000


async def keeps_to_the_protocol(store: SeenStore) -> None:
    """A claim suppresses nothing; what is confirmed is seen; what is released is free."""
    await store.start()
    a, b, c = b"a" * 20, b"b" * 20, b"\x00\xff" * 10
    assert await store.claim(dict.fromkeys([a, b], b"one")) == [Answer.CLAIMED, Answer.CLAIMED]
    assert await store.claim(dict.fromkeys([b, c], b"two")) == [Answer.PENDING, Answer.CLAIMED]
    await store.confirm([a])
    assert await store.claim(dict.fromkeys([a, b], b"two")) == [Answer.SEEN, Answer.PENDING]
    await store.release([a, b, c], b"two")
    assert await store.claim(dict.fromkeys([a, b, c], b"three")) == [
        Answer.SEEN,
        Answer.PENDING,
        Answer.CLAIMED,
    ]
    await store.release([a, b], b"one")
    assert await store.claim(dict.fromkeys([a, b], b"three")) == [Answer.SEEN, Answer.CLAIMED]
    await store.confirm([c, b])
    assert await store.claim(dict.fromkeys([c, b, a], b"four")) == [Answer.SEEN] * 3
    many = [b"%020d" % number for number in range(2_500)]
    assert await store.claim(dict.fromkeys(many, b"five")) == [Answer.CLAIMED] * 2_500
    await store.confirm(many)
    assert await store.claim(dict.fromkeys(many, b"six")) == [Answer.SEEN] * 2_500


async def one_claim_wins(stores: list[SeenStore]) -> None:
    """Of many that claim at once, in different orders, each key is one's alone."""
    keys = [b"!%019d" % number for number in range(200)]
    answers = await asyncio.gather(
        *(
            store.claim(dict.fromkeys(keys[turn:] + keys[:turn], b"owner-%d" % turn))
            for turn, store in enumerate(stores * 8)
        )
    )
    claimed = [answer for some in answers for answer in some if answer is Answer.CLAIMED]
    assert len(claimed) == len(keys)
    assert all(answer is not Answer.SEEN for some in answers for answer in some)


async def seen_expires(make: Callable[[int, int], SeenStore]) -> None:
    """Claims and what was seen end by themselves. ``make`` takes both times, in ms."""
    store = make(300, 300)
    key = b"z" * 20
    await store.start()
    assert await store.claim(dict.fromkeys([key], b"one")) == [Answer.CLAIMED]

    async def free() -> bool:
        return await store.claim(dict.fromkeys([key], b"two")) == [Answer.CLAIMED]

    await wait_until_async(free, 20, what="the claim has expired")
    await store.confirm([key])
    await wait_until_async(free, 20, what="what was seen has expired")
    await store.stop()
