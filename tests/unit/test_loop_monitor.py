"""The longest stall of the event loop within the last minute."""

import asyncio
import contextlib
import time

from heartbeat_stream.loop_monitor import LoopMonitor


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_the_longest_stall_counts_until_a_minute_has_passed() -> None:
    clock = Clock()
    monitor = LoopMonitor(clock)
    assert monitor.longest() == 0.0
    for at, stall in ((1000.0, 0.2), (1010.0, 0.05), (1020.0, 0.1), (1030.0, 0.01)):
        clock.now = at
        monitor.note(stall)
    assert monitor.longest() == 0.2
    clock.now = 1059.9
    assert monitor.longest() == 0.2
    clock.now = 1060.1
    assert monitor.longest() == 0.1  # that of 1010 was outdone by it
    clock.now = 1080.1
    assert monitor.longest() == 0.01
    clock.now = 1090.1
    assert monitor.longest() == 0.0


def test_it_remembers_no_more_than_it_needs() -> None:
    clock = Clock()
    monitor = LoopMonitor(clock)
    for number in range(100_000):
        clock.now += 0.01
        monitor.note(number % 7 / 1000)
    assert monitor.longest() == 0.006
    assert len(monitor._stalls) < 7_000


def test_a_loop_that_was_woken_early_has_not_stalled() -> None:
    monitor = LoopMonitor(Clock())
    monitor.note(-0.001)
    assert monitor.longest() == 0.0


async def test_work_that_holds_the_loop_is_seen() -> None:
    monitor = LoopMonitor()
    task = asyncio.create_task(monitor.run())
    await asyncio.sleep(0)  # it goes to sleep
    until = time.perf_counter() + 0.1
    while time.perf_counter() < until:  # the work that no await interrupts
        pass
    async with asyncio.timeout(10):
        while monitor.longest() < 0.08:
            await asyncio.sleep(0.01)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
