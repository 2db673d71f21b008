"""Waiting for a condition instead of for a time."""

from __future__ import annotations

import asyncio
import inspect
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

POLL_SECONDS = 0.02


def wait_until(
    condition: Callable[[], object], seconds: float = 10.0, *, what: str = "", every: float = 0
) -> None:
    """Return once `condition()` is true.

    Raises AssertionError, naming `what` (or the condition), when it is not within `seconds`. Asks
    every `every` seconds, 0.02 unless told. What the condition raises is passed on.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(_message(condition, seconds, what))
        time.sleep(every or POLL_SECONDS)


async def wait_until_async(
    condition: Callable[[], object] | Callable[[], Awaitable[object]],
    seconds: float = 10.0,
    *,
    what: str = "",
    every: float = 0,
) -> None:
    """The same for a coroutine function, or for a plain one while the event loop goes on.

    The deadline also interrupts a condition that hangs.
    """
    try:
        async with asyncio.timeout(seconds):
            while True:
                result = condition()
                if inspect.isawaitable(result):
                    result = await result
                if result:
                    return
                await asyncio.sleep(every or POLL_SECONDS)
    except TimeoutError:
        raise AssertionError(_message(condition, seconds, what)) from None


def process_runs(pid: int) -> bool:
    """Whether this process exists and is more than a dead one that nobody has waited for."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    if not stat.parent.parent.exists():
        return True  # macOS: nothing tells the two apart without `ps`
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _message(condition: Callable[..., object], seconds: float, what: str) -> str:
    name = what or getattr(condition, "__qualname__", repr(condition))
    return f"not within {seconds:g} s: {name}"
