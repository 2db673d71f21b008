"""Sending a simulated fleet's heartbeats to a topic, at a rate, in real time."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from heartbeat_stream.core.heartbeat import Heartbeat
from heartbeat_stream.local.fleet import Fleet, FleetCounts
from heartbeat_stream.local.record_sender import SendError, open_sender

__all__ = ["SendError", "SimulationProgress", "SimulationResult", "simulate"]

DEFAULT_SECONDS = 60.0
DEFAULT_HOTELS = 20
DEFAULT_ROOMS_PER_HOTEL = 100
DEFAULT_RATE = 5000.0
DEFAULT_SEED = 1

_TICK_S = 0.02
_SLICE = 4000
"""Most records made in one go: more would hold up the event loop for longer than 10 ms."""
_PROGRESS_S = 1.0
_STOP_S = 5.0


@dataclass(frozen=True)
class SimulationProgress:
    """How far it is after ``seconds``. ``counts`` goes on changing: read it at once."""

    counts: FleetCounts
    seconds: float


@dataclass(frozen=True)
class SimulationResult:
    """What was sent in ``seconds``, all of it acknowledged by the broker.

    ``oracle`` has the newest heartbeat of each room by its key: what must stand in the database
    once all is worked off, unless something newer was there before or came from elsewhere.
    """

    oracle: dict[bytes, Heartbeat]
    counts: FleetCounts
    seconds: float


async def simulate(
    *,
    brokers: str,
    topic: str,
    seconds: float = DEFAULT_SECONDS,
    hotels: int = DEFAULT_HOTELS,
    rooms: int = DEFAULT_ROOMS_PER_HOTEL,
    rate: float = DEFAULT_RATE,
    seed: int = DEFAULT_SEED,
    keyed: bool = False,
    on_progress: Callable[[SimulationProgress], None] | None = None,
    stop: asyncio.Event | None = None,
    security: Mapping[str, Any] | None = None,
) -> SimulationResult:
    """Send ``rate`` records a second for so many seconds; ``rooms`` is the number per hotel.

    Unkeyed records go to all partitions in turn, keyed ones to that of their room. What could not
    be sent in time, because the broker or this process stalled, is sent at once afterwards: the
    total is always ``rate * seconds``. Once ``stop`` is set it ends early, with a result, within
    about 10 s. When cancelled it ends without one, and what it has handed over is still sent.

    ``security`` has further arguments for an aiokafka client. ``on_progress`` is called about once
    a second and must not block. Raises :class:`SendError` where the broker or the topic is missing
    or refuses, also when the broker stays away for longer than 40 s; and :class:`ValueError` for a
    rate, a time or a size that makes no sense.
    """
    if not (rate > 0 and seconds > 0):
        raise ValueError(f"rate and seconds must be above 0, not {rate:g} and {seconds:g}")
    fleet = Fleet(hotels=hotels, rooms_per_hotel=rooms, seed=seed, keyed=keyed)
    counts = fleet.counts
    total = round(rate * seconds)
    async with open_sender(brokers, topic, security or {}) as sender, _stop_within(stop):
        started = time.monotonic()
        report_at = _PROGRESS_S
        while counts.sent < total and not (stop and stop.is_set()):
            elapsed = time.monotonic() - started
            due = records_due(elapsed, rate, total) - counts.sent
            if due > 0:
                now_ms = time.time_ns() // 1_000_000
                await sender.send(fleet.generate(now_ms, min(due, _SLICE)), now_ms)
            if on_progress and elapsed >= report_at:
                report_at = elapsed + _PROGRESS_S
                on_progress(SimulationProgress(counts, elapsed))
            await asyncio.sleep(0 if due > _SLICE else _TICK_S)
        await sender.flush()
        return SimulationResult(fleet.oracle(), counts, time.monotonic() - started)


@asynccontextmanager
async def _stop_within(stop: asyncio.Event | None) -> AsyncIterator[None]:
    """Break off the body if it goes on for too long once ``stop`` is set: the broker is away."""

    async def watch(limit: asyncio.Timeout, stop: asyncio.Event) -> None:
        await stop.wait()
        limit.reschedule(asyncio.get_running_loop().time() + _STOP_S)

    watcher = None
    try:
        async with asyncio.timeout(None) as limit:
            if stop:
                watcher = asyncio.create_task(watch(limit, stop))
            yield
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise SendError("stopped, but the broker has not acknowledged all that was sent") from error
    finally:
        if watcher:
            watcher.cancel()


def records_due(elapsed_s: float, rate: float, total: int) -> int:
    """How many should have been sent by now: counted from the start, so that no delay adds up."""
    return min(int(elapsed_s * rate), total)
