"""The faults of a soak. Each lasts less than half a minute and leaves as many workers as before."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable

from tests.soak.ground import Ground
from tests.support.faults import lose_files
from tests.support.verdict import Crash

__all__ = ["INJECTORS", "Injector"]

Injector = Callable[[Ground], Awaitable[None]]

#: Beyond every timeout that matters: the session's, and a statement's.
OUTAGE_S = 12.0


async def _killed(ground: Ground, files: str) -> None:
    worker = ground.any_worker()
    ground.workers.remove(worker)
    await worker.kill()
    ground.crashes.append(Crash.now())
    if files != "kept" and not ground.workers:
        lose_files(ground.world, files, ground.chance)
    elif files != "kept":
        # The others have theirs open.
        directory = await _directory_that_is_free(ground)
        if directory is not None:
            shutil.rmtree(directory)
    await ground.start_worker()


async def _directory_that_is_free(ground: Ground) -> str | None:
    """The local state of a worker that has ended."""
    settings = ground.world.settings
    used = set()
    for worker in ground.workers:
        _, body = await worker.get("/metrics")
        used |= {part for part in body.decode().split('"') if "/worker-" in part}
    for path in sorted((settings.data_dir / settings.app_id).glob("worker-*")):
        if str(path) not in used:
            return str(path)
    return None


async def killed(ground: Ground) -> None:
    await _killed(ground, "kept")


async def killed_and_files_removed(ground: Ground) -> None:
    await _killed(ground, "removed")


async def all_killed_and_half_of_their_files_lost(ground: Ground) -> None:
    count = len(ground.workers)
    while ground.workers:
        await ground.workers.pop().kill()
    ground.crashes.append(Crash.now())
    lose_files(ground.world, "half removed", ground.chance)
    for _ in range(count):
        await ground.start_worker()


async def restarted(ground: Ground) -> None:
    worker = ground.any_worker()
    ground.workers.remove(worker)
    await worker.stopped(60)
    await ground.start_worker()


async def frozen(ground: Ground) -> None:
    """Beyond its session: another worker has its partitions when it thaws."""
    worker = ground.any_worker()
    begins = Crash.now()
    worker.freeze()
    await asyncio.sleep(OUTAGE_S)
    worker.thaw()
    await worker.ready(120)
    ground.crashes.append(begins.until_now())


async def one_more_for_a_while(ground: Ground) -> None:
    worker = await ground.start_worker()
    await asyncio.sleep(OUTAGE_S / 2)
    ground.workers.remove(worker)
    await worker.stopped(60)


async def _database(ground: Ground, begin: Callable[[], None], end: Callable[[], object]) -> None:
    """What was sent when it went away may have landed unknown to the worker."""
    begins = Crash.now()
    await asyncio.to_thread(begin)
    await asyncio.sleep(OUTAGE_S)
    await asyncio.to_thread(end)
    ground.crashes.append(begins.until_now())


async def database_stopped(ground: Ground) -> None:
    await _database(ground, lambda: ground.postgres.stop("immediate"), ground.postgres.start)


async def database_frozen(ground: Ground) -> None:
    await _database(ground, ground.postgres.freeze, ground.postgres.thaw)


async def database_read_only(ground: Ground) -> None:
    async with ground.world.table.connect() as connection:
        await connection.execute("SET default_transaction_read_only = off")
        await connection.execute("ALTER SYSTEM SET default_transaction_read_only = on")
        await connection.execute("SELECT pg_reload_conf()")
        await asyncio.sleep(OUTAGE_S)
        await connection.execute("ALTER SYSTEM RESET default_transaction_read_only")
        await connection.execute("SELECT pg_reload_conf()")


async def sessions_terminated(ground: Ground) -> None:
    begins = Crash.now()
    async with ground.world.table.connect() as connection:
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1",
            ground.world.settings.app_id,
        )
    ground.crashes.append(begins.until_now())


async def _broker(ground: Ground, outage: Awaitable[None]) -> None:
    """A session may end meanwhile, and partitions move without a checkpoint."""
    begins = Crash.now()
    await outage
    await ground.all_ready()
    ground.crashes.append(begins.until_now())


async def broker_restarted(ground: Ground) -> None:
    await _broker(ground, asyncio.to_thread(ground.kafka.restart))


async def broker_frozen(ground: Ground) -> None:
    async def outage() -> None:
        ground.kafka.freeze()
        await asyncio.sleep(OUTAGE_S)
        ground.kafka.thaw()

    await _broker(ground, outage())


INJECTORS: list[Injector] = [
    killed,
    killed_and_files_removed,
    all_killed_and_half_of_their_files_lost,
    restarted,
    frozen,
    one_more_for_a_while,
    database_stopped,
    database_frozen,
    database_read_only,
    sessions_terminated,
    broker_restarted,
    broker_frozen,
]
