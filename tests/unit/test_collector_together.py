"""Many reports' questions to a store of seen events, as few round trips."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from heartbeat_stream.collector.seen.memory import MemoryStore
from heartbeat_stream.collector.seen.store import Answer, StoreFailed
from heartbeat_stream.collector.seen.together import Together
from tests.support.wait import wait_until_async

HOUR_MS = 3_600_000


class SlowStore(MemoryStore):
    """Answers no question before it is told to; notes the keys of each."""

    def __init__(self) -> None:
        super().__init__(claim_ms=HOUR_MS, window_ms=HOUR_MS, most=10**6, now_ms=lambda: 1)
        self.asked: list[list[bytes]] = []
        self.may_answer = asyncio.Event()
        self.error: Exception | None = None

    async def claim(self, wanted: Mapping[bytes, bytes]) -> list[Answer]:
        self.asked.append(list(wanted))
        await self.may_answer.wait()
        if self.error is not None:
            raise self.error
        return await super().claim(wanted)

    async def confirm(self, keys: Sequence[bytes]) -> None:
        assert len(set(keys)) == len(keys)
        self.asked.append(list(keys))
        await self.may_answer.wait()
        await super().confirm(keys)

    async def has_been_asked(self, times: int) -> None:
        async def so_often() -> bool:
            return len(self.asked) >= times

        await wait_until_async(so_often, 20, what=f"{times} questions")


@pytest.fixture
def store() -> SlowStore:
    return SlowStore()


@pytest.fixture
def together(store: SlowStore) -> Together:
    return Together(store, limit_s=20)


def keys(*numbers: int) -> list[bytes]:
    return [b"%020d" % number for number in numbers]


def by(wanted: list[bytes], owner: bytes) -> dict[bytes, bytes]:
    return dict.fromkeys(wanted, owner)


async def test_what_is_asked_while_an_answer_is_under_way_goes_together(
    store: SlowStore, together: Together
) -> None:
    first = asyncio.create_task(together.claim(by(keys(0), b"report-0")))
    await store.has_been_asked(1)
    others = [
        asyncio.create_task(together.claim(by(keys(number, number + 100), b"report-%d" % number)))
        for number in range(1, 50)
    ]
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(store.asked) == 1, "one question at a time"
    store.may_answer.set()
    assert await first == [Answer.CLAIMED]
    assert await asyncio.gather(*others) == [[Answer.CLAIMED] * 2] * 49
    assert len(store.asked) == 2
    await store.release(keys(7), b"report-7")
    assert await together.claim(by(keys(7, 8), b"late")) == [
        Answer.CLAIMED,
        Answer.PENDING,
    ], "each claim is in the name of its own report"


async def test_of_those_that_want_one_key_at_once_the_first_has_it(
    store: SlowStore, together: Together
) -> None:
    store.may_answer.set()
    claims = [together.claim(by(keys(number, 99), b"report-%d" % number)) for number in range(5)]
    first, *others = await asyncio.gather(*claims)
    assert len(store.asked) == 1
    assert first == [Answer.CLAIMED, Answer.CLAIMED]
    assert others == [[Answer.CLAIMED, Answer.PENDING]] * 4
    await asyncio.gather(*(together.confirm(keys(99, number)) for number in range(5)))
    assert len(store.asked) == 2
    again = await asyncio.gather(*(together.claim(by(keys(99), b"%d" % n)) for n in range(5)))
    assert again == [[Answer.SEEN]] * 5


async def test_a_store_that_fails_fails_for_all_who_ask_and_is_asked_again(
    store: SlowStore, together: Together
) -> None:
    store.error = StoreFailed("it is away")
    store.may_answer.set()
    claims = [together.claim(by(keys(number), b"report")) for number in range(3)]
    answers = await asyncio.gather(*claims, return_exceptions=True)
    assert [str(answer) for answer in answers] == ["it is away"] * 3
    assert all(isinstance(answer, StoreFailed) for answer in answers)
    assert len({id(answer) for answer in answers}) == 3
    store.error = None
    assert await together.claim(by(keys(1), b"report")) == [Answer.CLAIMED]


async def test_a_store_that_hangs_holds_nobody_beyond_the_limit(store: SlowStore) -> None:
    together = Together(store, limit_s=0.05)
    with pytest.raises(StoreFailed, match="too slow"):
        await together.claim(by(keys(1), b"report"))
    store.may_answer.set()
    assert await together.claim(by(keys(1), b"report")) == [Answer.CLAIMED]


async def test_who_has_given_up_is_not_asked_for(store: SlowStore, together: Together) -> None:
    first = asyncio.create_task(together.claim(by(keys(1), b"one")))
    await store.has_been_asked(1)
    gone, stays = (asyncio.create_task(together.claim(by(keys(n), b"%d" % n))) for n in (2, 3))
    await asyncio.sleep(0)
    gone.cancel()
    store.may_answer.set()
    assert await first == await stays == [Answer.CLAIMED]
    assert store.asked == [keys(1), keys(3)]


async def test_many_keys_wait_for_nobody_and_hold_nobody_up(
    store: SlowStore, together: Together
) -> None:
    small = asyncio.create_task(together.claim(by(keys(1), b"small")))
    confirmed = asyncio.create_task(together.confirm(keys(999)))
    await store.has_been_asked(2)
    large = asyncio.create_task(together.claim(by(keys(*range(1, 501)), b"large")))
    many_confirmed = asyncio.create_task(together.confirm(keys(*range(1_000, 1_500))))
    await store.has_been_asked(4)
    store.may_answer.set()
    assert await small == [Answer.CLAIMED]
    assert await large == [Answer.PENDING] + [Answer.CLAIMED] * 499
    await asyncio.gather(confirmed, many_confirmed)


async def test_a_question_is_bounded(store: SlowStore, together: Together) -> None:
    waiting = [
        asyncio.create_task(together.claim(by(keys(*range(at, at + 100)), b"report")))
        for at in range(0, 5_000, 100)
    ]
    await store.has_been_asked(1)
    store.may_answer.set()
    assert await asyncio.gather(*waiting) == [[Answer.CLAIMED] * 100] * 50
    assert [len(asked) for asked in store.asked] == [1_000] * 5


async def test_a_defect_is_told_to_those_who_ask(store: SlowStore, together: Together) -> None:
    store.error = ZeroDivisionError()
    store.may_answer.set()
    with pytest.raises(ZeroDivisionError):
        await together.claim(by(keys(1), b"report"))
    store.error = None
    assert await together.claim(by(keys(1), b"report")) == [Answer.CLAIMED]


async def test_nothing_is_asked_any_more_once_it_has_stopped(
    store: SlowStore, together: Together
) -> None:
    first = asyncio.create_task(together.claim(by(keys(1), b"one")))
    await store.has_been_asked(1)
    second = asyncio.create_task(together.claim(by(keys(2), b"two")))
    await asyncio.sleep(0)
    await together.stop()
    store.may_answer.set()
    _, waiting = await asyncio.wait({first, second}, timeout=0.05)
    assert waiting == {first, second}
    assert store.asked == [keys(1)]
    assert await store.claim(by(keys(1), b"three")) == [Answer.CLAIMED], "it was cut off"
    for task in waiting:
        task.cancel()
