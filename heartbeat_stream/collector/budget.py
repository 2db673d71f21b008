"""The memory that reports under way may take together."""

import asyncio
from collections import deque

__all__ = ["Budget"]


class Budget:
    """Bytes that are lent. More than there are in all counts as all of them."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._free = total
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def in_use(self) -> int:
        return self._total - self._free

    def take(self, amount: int) -> bool:
        """Take so many if they are free, and nobody waits."""
        amount = min(amount, self._total)
        if self._waiting or amount > self._free:
            return False
        self._free -= amount
        return True

    async def wait(self, amount: int) -> None:
        """Take so many once they are free, in turn. May be cancelled."""
        if self.take(amount):
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((min(amount, self._total), future))
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.give_back(amount)
            raise

    def give_back(self, amount: int) -> None:
        """What was taken is free again."""
        self._free += min(amount, self._total)
        while self._waiting:
            wanted, future = self._waiting[0]
            if future.done():  # who waited has gone
                self._waiting.popleft()
                continue
            if wanted > self._free:
                return
            self._waiting.popleft()
            self._free -= wanted
            future.set_result(None)
