"""How long a worker may take to end."""

from __future__ import annotations

from heartbeat_stream import app
from heartbeat_stream.settings import Settings


def longest_end_s(settings: Settings) -> float:
    """From SIGTERM to the exit: what is due is written, everything made durable, the group left.

    The bounds of `Worker.finish` and `Worker.stop`.
    """
    drain_s = settings.drain_timeout_ms / 1000
    return drain_s / 2 + drain_s + app._FAUST_STOP_S
