"""The port of the web view: taken when the worker starts, and never let go before it ends."""

import errno
import os
import socket

from heartbeat_stream.commands import CommandError
from heartbeat_stream.settings import Settings

__all__ = ["listen"]

_PORTS_TRIED = 100
_PORT_MAX = 65_535
_BACKLOG = 128


def listen(settings: Settings) -> socket.socket:
    """A listening socket on the port that was set, or the first free one from the default on.

    It listens at once, long before anybody answers on it: only a port that is taken for good is no
    longer free for another worker that starts at the same moment. Raises :class:`CommandError`.
    """
    host = settings.web_host
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for port in range(settings.web_port, min(settings.web_port + _PORTS_TRIED, _PORT_MAX + 1)):
        try:
            return socket.create_server((host, port), family=family, backlog=_BACKLOG)
        except OSError as exc:
            if exc.errno == errno.EADDRINUSE and not settings.web_port_is_set:
                continue
            raise CommandError(_wrong(host, port, exc)) from exc
    raise CommandError("no free port for the web view: set HEARTBEAT_WEB_PORT")


def _wrong(host: str, port: int, exc: OSError) -> str:
    reason = os.strerror(exc.errno) if exc.errno else str(exc)
    if exc.errno in (errno.EADDRINUSE, errno.EACCES):
        return (
            f"HEARTBEAT_WEB_PORT={port}: cannot listen on {host}:{port} ({reason}): set "
            "another port, or none for the next free one"
        )
    return f"HEARTBEAT_WEB_HOST={host}: cannot listen there ({reason}): set another address"
