"""What many reports ask of a store, as few round trips.

What is asked while an answer is under way goes together in the next question. A report of many
events asks by itself, so that nobody waits behind it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence, Sized
from typing import Final, Generic, TypeVar

from heartbeat_stream.collector.seen.store import Answer, SeenStore, StoreFailed

__all__ = ["Together"]

Q = TypeVar("Q", bound=Sized)
A = TypeVar("A")

#: Keys that go together at most, and from how many on they go alone: some milliseconds of a store.
_TOGETHER: Final = 1_000
_ALONE: Final = 200


class Together:
    """In front of one store, which is asked through this alone. Within one event loop."""

    def __init__(self, store: SeenStore, *, limit_s: float) -> None:
        """``limit_s``: a question that is not answered by then has failed for all who ask it."""
        self._store = store
        self._claims = _Lane(self._claim, limit_s)
        self._confirmations = _Lane(self._confirm, limit_s)

    async def start(self) -> None:
        await self._store.start()

    async def claim(self, wanted: Mapping[bytes, bytes]) -> list[Answer]:
        """Of those that want the same key at once the first may have it."""
        if len(wanted) >= _ALONE:
            return await self._store.claim(wanted)
        return await self._claims.ask(wanted)

    async def _claim(self, asked: Sequence[Mapping[bytes, bytes]]) -> list[list[Answer]]:
        owners: dict[bytes, bytes] = {}
        for wanted in asked:
            for key, owner in wanted.items():
                owners.setdefault(key, owner)
        answers = dict(zip(owners, await self._store.claim(owners), strict=True))

        def answer(key: bytes, owner: bytes) -> Answer:
            another_has_it = answers[key] is Answer.CLAIMED and owners[key] != owner
            return Answer.PENDING if another_has_it else answers[key]

        return [[answer(*claim) for claim in wanted.items()] for wanted in asked]

    async def confirm(self, keys: Sequence[bytes]) -> None:
        if len(keys) >= _ALONE:
            await self._store.confirm(keys)
        else:
            await self._confirmations.ask(keys)

    async def _confirm(self, asked: Sequence[Sequence[bytes]]) -> list[None]:
        await self._store.confirm(list(dict.fromkeys(key for keys in asked for key in keys)))
        return [None] * len(asked)

    async def release(self, keys: Sequence[bytes], owner: bytes) -> None:
        await self._store.release(keys, owner)

    async def clean(self) -> int:
        return await self._store.clean()

    async def stop(self) -> None:
        """Ask nothing more: who still waits gets no answer."""
        self._claims.stop()
        self._confirmations.stop()
        await self._store.stop()


class _Lane(Generic[Q, A]):
    """One question at a time, of all who asked since the last one."""

    def __init__(self, ask: Callable[[list[Q]], Awaitable[list[A]]], limit_s: float) -> None:
        self._ask = ask
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
                size += len(question)
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
