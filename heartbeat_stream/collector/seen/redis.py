"""Seen events in Redis: SET NX PX, a pipeline for each batch of keys.

Redis lets go of keys by their age itself; by number and memory it does with ``maxmemory`` and
``maxmemory-policy volatile-lru``: those used longest ago first.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from heartbeat_stream.collector.seen.store import Answer, StoreFailed

__all__ = ["RedisStore"]

T = TypeVar("T")

_SEEN: Final = b"+"
_CLAIM: Final = b"?"
_PIPELINED: Final = 1_000
_CONNECTIONS: Final = 32
#: Deletes a key if its value is that one. Nobody can claim it between the look and the deletion.
_RELEASE: Final = (
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"
)


class RedisStore:
    """Keys below a prefix, so that several collectors' families may share one Redis."""

    def __init__(
        self, url: str, *, prefix: str, claim_ms: int, window_ms: int, wait_ms: int
    ) -> None:
        self._prefix = prefix.encode()
        self._claim_ms = claim_ms
        self._window_ms = window_ms
        # Nothing is tried again here: whoever asks has no time for it. Few connections, kept.
        pool: Any = BlockingConnectionPool.from_url(
            url,
            max_connections=_CONNECTIONS,
            timeout=wait_ms / 1000,
            socket_timeout=wait_ms / 1000,
            socket_connect_timeout=wait_ms / 1000,
            retry=Retry(NoBackoff(), 0),
        )
        self._redis: Any = Redis.from_pool(pool)

    async def start(self) -> None:
        async with _told():
            await self._redis.ping()

    async def claim(self, wanted: Mapping[bytes, bytes]) -> list[Answer]:
        answers: list[Answer] = []
        for some in _chunks(list(wanted.items())):
            pipeline = self._redis.pipeline(transaction=False)
            for key, owner in some:
                pipeline.set(self._key(key), _CLAIM + owner, nx=True, px=self._claim_ms)
            async with _told():
                were_set = await pipeline.execute()
                others = [key for (key, _), was in zip(some, were_set, strict=True) if not was]
                held = await self._held(others) if others else {}
            answers += [_answer(held[key]) if key in held else Answer.CLAIMED for key, _ in some]
        return answers

    async def _held(self, keys: Sequence[bytes]) -> dict[bytes, bytes | None]:
        """What stands there; None where it has gone since."""
        pipeline = self._redis.pipeline(transaction=False)
        for key in keys:
            pipeline.get(self._key(key))
        return dict(zip(keys, await pipeline.execute(), strict=True))

    async def confirm(self, keys: Sequence[bytes]) -> None:
        for some in _chunks(keys):
            pipeline = self._redis.pipeline(transaction=False)
            for key in some:
                pipeline.set(self._key(key), _SEEN, px=self._window_ms)
            async with _told():
                await pipeline.execute()

    async def release(self, keys: Sequence[bytes], owner: bytes) -> None:
        for some in _chunks(keys):
            pipeline = self._redis.pipeline(transaction=False)
            for key in some:
                pipeline.eval(_RELEASE, 1, self._key(key), _CLAIM + owner)
            async with _told():
                await pipeline.execute()

    async def clean(self) -> int:
        """Redis does it."""
        return 0

    async def stop(self) -> None:
        async with _told():
            await self._redis.aclose()

    def _key(self, key: bytes) -> bytes:
        return self._prefix + key


def _answer(value: bytes | None) -> Answer:
    return Answer.SEEN if value == _SEEN else Answer.PENDING


def _chunks(all_of_them: Sequence[T]) -> list[Sequence[T]]:
    return [all_of_them[at : at + _PIPELINED] for at in range(0, len(all_of_them), _PIPELINED)]


@asynccontextmanager
async def _told() -> AsyncIterator[None]:
    try:
        yield
    except (RedisError, OSError, TimeoutError) as error:
        raise StoreFailed(f"Redis: {type(error).__name__}") from error
