"""Other frameworks on the same topic, where they are installed (`make bench-peers`)."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from heartbeat_stream.bench import peers
from heartbeat_stream.bench.runs import Run
from heartbeat_stream.bench.worker_process import BenchError

__all__ = ["PEERS", "Peer", "installed", "run_peer"]

#: The environment that `make bench-peers` makes, beside the one that this runs in.
ENVIRONMENT = Path(".venv-peers")
_GIVE_UP_S = 300.0


@dataclass(frozen=True)
class Peer:
    """``messages``: how many it is given, so that it takes some ten seconds. ``package``: what must
    be installed. ``own``: whether in this very environment."""

    name: str
    program: str
    package: str
    messages: int
    own: bool = False


PEERS: Sequence[Peer] = (
    Peer("Quix Streams with state", "quix_streams.py", "quixstreams", 600_000),
    Peer("plain Faust, no state", "plain_faust.py", "faust", 200_000, own=True),
)


def installed(peer: Peer) -> Path | None:
    """The Python that has it; None where none has."""
    python = Path(sys.executable) if peer.own else ENVIRONMENT.resolve() / "bin" / "python"
    if not python.exists():
        return None
    found = subprocess.run(
        [str(python), "-c", f"import {peer.package}"], capture_output=True, check=False
    )
    return python if found.returncode == 0 else None


async def run_peer(
    peer: Peer, python: Path, brokers: str, topic: str, directory: Path, messages: int
) -> Run:
    """Raises BenchError where it fails, or takes more than five minutes."""
    program = Path(peers.__file__).with_name(peer.program)
    command = [str(python), str(program), brokers, topic, str(messages), str(directory)]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=directory, env=os.environ
    )
    try:
        async with asyncio.timeout(_GIVE_UP_S):
            output, errors = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise BenchError(f"{peer.name} took more than {_GIVE_UP_S:g} s") from None
    # Before it may come what a framework prints about itself.
    _, found, line = output.decode(errors="replace").rpartition('{"messages"')
    if not found:
        said = errors.decode(errors="replace").strip().splitlines()
        raise BenchError(f"{peer.name} failed: {said[-1] if said else 'it said nothing'}")
    result = json.loads(found + line)
    return Run(result["messages"], result["seconds"], result["cpu_seconds"])
