"""A server of one's own in a ``with``: started on the way in, gone on the way out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

__all__ = ["LocalServer"]


class LocalServer(ABC):
    """What it starts is closed on the way out, and after a start that fails half-way too."""

    @abstractmethod
    def start(self) -> Self:
        """Start it and wait until it answers, within its own bound."""

    @abstractmethod
    def close(self) -> None:
        """End it and remove its files. Safe to repeat, and after a start that failed."""

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:  # Ctrl-C, too: no server stays behind
            self.close()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
