"""Which events of a report have come before: asked of a store, within a bounded wait."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Final, NamedTuple, TypeVar

from heartbeat_stream.collector.seen.store import Answer, SeenStore, StoreFailed
from heartbeat_stream.complaints import Complaints
from heartbeat_stream.core.tracking_record import Verdict

__all__ = ["Claims", "Judge", "seen_key"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

_KEY_BYTES: Final = 20
_OWNER_BYTES: Final = 12
#: After a failure nobody asks the store for so long: what is away would cost each client the wait.
_PAUSE_S: Final = 1.0


def seen_key(identity: bytes) -> bytes:
    """What stands for an identity in a store: of one length, however long its fields are."""
    return blake2b(identity, digest_size=_KEY_BYTES).digest()


class Claims(NamedTuple):
    """The verdicts that are there, by key, and the keys that somebody else is about to decide."""

    verdicts: dict[bytes, Verdict]
    pending: list[bytes]


class Judge:
    """Asks one store. It never fails, and it waits for no answer longer than told."""

    def __init__(self, store: SeenStore, *, wait_s: float) -> None:
        self.store = store
        self._wait_s = wait_s
        self._failed_at: float | None = None
        self._complaints = Complaints(logger)
        self.failures = 0

    @staticmethod
    def owner() -> bytes:
        """A name for one report's claims."""
        return os.urandom(_OWNER_BYTES)

    async def start(self) -> None:
        """Connect, so that the first report need not wait for it."""
        await self._ask(self.store.start())

    async def claim(self, keys: Sequence[bytes], owner: bytes) -> Claims:
        """Claim these, each once. Where the store does not answer, all of them are unjudged."""
        answers = await self._ask(self.store.claim(dict.fromkeys(keys, owner)))
        if answers is None:
            return Claims(dict.fromkeys(keys, Verdict.UNJUDGED), [])
        claims = Claims({}, [])
        for key, answer in zip(keys, answers, strict=True):
            if answer is Answer.PENDING:
                claims.pending.append(key)
            else:
                claims.verdicts[key] = _VERDICTS[answer]
        return claims

    async def confirm(self, keys: Sequence[bytes]) -> None:
        """Kafka has the events of these."""
        if keys:
            await self._ask(self.store.confirm(keys))

    async def release(self, keys: Sequence[bytes], owner: bytes) -> None:
        """Nobody brings the events of these to Kafka."""
        if keys:
            await self._ask(self.store.release(keys, owner))

    async def clean(self) -> None:
        """One step of cleaning."""
        await self._ask(self.store.clean())

    async def stop(self) -> None:
        """Let go of the store."""
        with suppress(StoreFailed):
            await self.store.stop()

    async def _ask(self, question: Awaitable[T]) -> T | None:
        """The answer; None where there is none in time, or the store failed a moment ago."""
        now = asyncio.get_running_loop().time()
        if self._failed_at is not None and now - self._failed_at < _PAUSE_S:
            if asyncio.iscoroutine(question):
                question.close()
            return None
        try:
            async with asyncio.timeout(self._wait_s):
                answer = await question
        except (StoreFailed, TimeoutError) as error:
            self._failed_at = asyncio.get_running_loop().time()
            self.failures += 1
            self._complaints.warning(
                "the store of seen events does not answer (%s): events pass unjudged",
                error if str(error) else "too slow",
            )
            return None
        self._failed_at = None
        return answer


_VERDICTS: Final = {Answer.CLAIMED: Verdict.FIRST, Answer.SEEN: Verdict.DUPLICATE}
