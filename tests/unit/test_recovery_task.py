"""What becomes of a worker whose recovery ends by an error."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

from heartbeat_stream.liveness import Liveness
from heartbeat_stream.settings import Settings
from heartbeat_stream.streaming.faust_app import EngineApp, make_app
from heartbeat_stream.streaming.recovery import BatchRecovery


class Unexpected(Exception):
    """What nobody has thought of."""


class BrokenEngine:
    """Raises this from every recovery."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    async def recover(self, changelogs: dict[str, set[int]]) -> None:
        raise self._error


async def recover_once(directory: Path, error: BaseException) -> EngineApp:
    """The app after its recovery task has ended, by itself and soon."""
    with socket.socket() as web_socket:
        app = make_app(Settings(app_id="recovery-task"), directory, web_socket)
    app.liveness = Liveness()
    app.engine = BrokenEngine(error)  # type: ignore[assignment]
    recovery = app.tables.recovery  # type: ignore[attr-defined]
    assert isinstance(recovery, BatchRecovery)
    recovery.signal_recovery_start.set()
    task = asyncio.ensure_future(BatchRecovery._restart_recovery.fun(recovery))
    await asyncio.wait([task], timeout=10)
    assert task.done()
    return app


async def test_an_error_ends_the_worker(tmp_path: Path) -> None:
    app = await recover_once(tmp_path, Unexpected("what"))
    assert isinstance(app.crash_reason, Unexpected)
    assert app.liveness.failed() == ["recovery has ended"]


async def test_a_library_that_cancels_it_has_liveness_say_so(tmp_path: Path) -> None:
    app = await recover_once(tmp_path, asyncio.CancelledError())
    assert app.liveness.failed() == ["recovery has ended"]
