"""A command as its users type it, in the world of a test."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from typing import NamedTuple

from tests.support.world import World

__all__ = ["Done", "run_command", "start_command"]

_SECONDS = 90.0


class Done(NamedTuple):
    """What became of it: its exit code, and what it printed where."""

    code: int
    out: str
    err: str


async def start_command(world: World, *arguments: str, **environment: object) -> Process:
    """Start it, with further settings as in ``World.prepare``. Nobody types anything."""
    more = {f"HEARTBEAT_{name.upper()}": str(value) for name, value in environment.items()}
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "heartbeat_stream",
        *arguments,
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
        cwd=world.directory,
        env={**os.environ, **world.environment, **more},
    )


async def run_command(world: World, *arguments: str, code: int = 0, **environment: object) -> Done:
    """Run it to its end, and require this exit code. What is wrong is one line."""
    process = await start_command(world, *arguments, **environment)
    try:
        async with asyncio.timeout(_SECONDS):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    done = Done(process.returncode or 0, out.decode(), err.decode())
    assert done.code == code, done
    if code:
        assert "Traceback" not in done.err
        assert len(done.err.splitlines()) == 1, done
    return done
