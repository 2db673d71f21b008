"""Numbers in sentences for people."""

from __future__ import annotations

__all__ = ["number_of", "were"]


def number_of(count: int, noun: str) -> str:
    """``1 row``, ``4,711 rows``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def were(count: int, noun: str | None = None) -> str:
    """``1 row was``, ``4,711 rows were``; without a noun ``1 was``."""
    subject = f"{count:,}" if noun is None else number_of(count, noun)
    return f"{subject} was" if count == 1 else f"{subject} were"
