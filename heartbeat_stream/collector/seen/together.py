"""What many reports ask of a store, as few round trips.

What is asked while an answer is under way goes together in the next question. A report of many
events asks by itself, so that nobody waits behind it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from heartbeat_stream.collector.seen.store import Answer, SeenStore, StoreFailed

__all__ = ["Together"]

Q = TypeVar("Q")
A = TypeVar("A")

#: Keys that go together at most, and from how many on they go alone: some milliseconds of a store.
_TOGETHER: Final = 1_000
_ALONE: Final = 200


class _Claim(NamedTuple):
    keys: Sequence[bytes]
    owner: bytes


class Together:
    """In front of one store. Within one event loop."""

    def __init__(self, store: SeenStore, *, limit_s: float) -> None:
        """``limit_s``: a question that is not answered by then has failed for all who ask it."""
        self._store = store
        self._claims = _Lane(self._claim, lambda claim: len(claim.keys), limit_s)
        self._confirmations = _Lane(self._confirm, len, limit_s)

    async def claim(self, keys: Sequence[bytes], owner: bytes) -> list[Answer]:
        """Claim each key that is free; the answers in order. Keys are unique within a call.

        Raises :class:`StoreFailed`.
        """
        claim = _Claim(keys, owner)
        if len(keys) >= _ALONE:
            return (await self._claim([claim]))[0]
        return await self._claims.ask(claim)

    async def confirm(self, keys: Sequence[bytes]) -> None:
        """These are seen from now on. Raises :class:`StoreFailed`."""
        if len(keys) >= _ALONE:
            await self._store.confirm(keys)
        else:
            await self._confirmations.ask(keys)

    async def _claim(self, claims: Sequence[_Claim]) -> list[list[Answer]]:
        """Of those that want the same key the first may have it."""
        wanted: dict[bytes, bytes] = {}
        for keys, owner in claims:
            for key in keys:
                wanted.setdefault(key, owner)
        answers = dict(zip(wanted, await self._store.claim(wanted), strict=True))
        return [_answers(claim, answers, wanted) for claim in claims]

    async def _confirm(self, confirmed: Sequence[Sequence[bytes]]) -> list[None]:
        await self._store.confirm(list(dict.fromkeys(key for keys in confirmed for key in keys)))
        return [None] * len(confirmed)

    def stop(self) -> None:
        """Ask nothing more. Who still waits gets no answer."""
        self._claims.stop()
        self._confirmations.stop()


def _answers(
    claim: _Claim, answers: Mapping[bytes, Answer], owners: Mapping[bytes, bytes]
) -> list[Answer]:
    return [
        Answer.PENDING
        if answers[key] is Answer.CLAIMED and owners[key] != claim.owner
        else answers[key]
        for key in claim.keys
    ]


class _Lane(Generic[Q, A]):
    """One question at a time, of all who asked since the last one."""

    def __init__(
        self,
        ask: Callable[[list[Q]], Awaitable[list[A]]],
        size: Callable[[Q], int],
        limit_s: float,
    ) -> None:
        self._ask = ask
        self._size = size
        self._limit_s = limit_s
        self._waiting: list[tuple[Q, asyncio.Future[A]]] = []
        self._task: asyncio.Task[None] | None = None

    async def ask(self, question: Q) -> A:
        future: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._waiting.append((question, future))
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return await future

    async def _run(self) -> None:
        try:
            while asked := self._take():
                await self._answer(asked)
        finally:
            self._task = None

    async def _answer(self, asked: list[tuple[Q, "asyncio.Future[A]"]]) -> None:
        try:
            async with asyncio.timeout(self._limit_s):
                answers = await self._ask([question for question, _ in asked])
        except Exception as error:  # whatever it was, those who wait are told
            for _, future in asked:
                if not future.done():
                    future.set_exception(_told(error))
            return
        for (_, future), answer in zip(asked, answers, strict=True):
            if not future.done():
                future.set_result(answer)

    def _take(self) -> list[tuple[Q, "asyncio.Future[A]"]]:
        """Who waits, in turn, and has not given up; as many as may go together."""
        taken: list[tuple[Q, asyncio.Future[A]]] = []
        size = count = 0
        for question, future in self._waiting:
            if size >= _TOGETHER:
                break
            count += 1
            if not future.done():
                taken.append((question, future))
                size += self._size(question)
        del self._waiting[:count]
        return taken

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()


def _told(error: Exception) -> Exception:
    """The same for each, since who catches an exception writes into it."""
    if isinstance(error, (StoreFailed, TimeoutError)):
        return StoreFailed(str(error) or "too slow")
    return error
