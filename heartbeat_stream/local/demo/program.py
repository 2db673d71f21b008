"""A command of this program as a process of the demo's, which ends with it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping

from heartbeat_stream.config.spec import PREFIX
from heartbeat_stream.local.process import ServerProcess
from heartbeat_stream.local.stack import EmbeddedStack

__all__ = ["demo_process"]


def demo_process(
    stack: EmbeddedStack, command: str, environment: Mapping[str, str]
) -> ServerProcess:
    """The process, not yet started, with these settings and no others. Its log lies with the
    stack's, under the name of the command.
    """
    return ServerProcess(
        command,
        [sys.executable, "-m", "heartbeat_stream", command],
        directory=stack.directory,  # where no .env file lies
        log=stack.directory / f"{command}.log",
        environment={
            **{name: text for name, text in os.environ.items() if not name.startswith(PREFIX)},
            **environment,
        },
        # When this process is gone, the stack ends at the same time: nothing is worth saving.
        end_signal=signal.SIGKILL,
        remove=[stack.directory],
    )
