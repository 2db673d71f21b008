"""Where the database is and how long to wait for it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from urllib.parse import SplitResult, parse_qsl, urlsplit

from heartbeat_stream.config.urls import redact_url

EXAMPLE = "postgresql://user:password@host:5432/database"
ESCAPES = (
    "special characters in the user name or the password must be percent-encoded, as %40 for @"
)


@dataclass(frozen=True, slots=True, repr=False)
class PostgresSettings:
    """Connection settings of a sink. Raises ValueError where they cannot be right.

    ``pooler``: there is a pooler in transaction mode (pgbouncer, say) between here and the
    database. Then nothing may outlive a transaction: no prepared statements, no session settings.

    A connection attempt takes ``connect_timeout_ms`` at most, a statement ``statement_timeout_ms``
    at the server and ``PATIENCE_MS`` more here, for a server that no longer answers at all.
    """

    url: str
    pool_size: int = 4
    connect_timeout_ms: int = 5_000
    statement_timeout_ms: int = 10_000
    pooler: bool = False
    application_name: str = "heartbeat-stream"

    def __post_init__(self) -> None:
        check_url(self.url)
        for name in ("pool_size", "connect_timeout_ms", "statement_timeout_ms"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, not {getattr(self, name)}")

    @property
    def shown_url(self) -> str:
        """The URL without its password, fit for logs."""
        return redact_url(self.url)

    def __repr__(self) -> str:
        return (
            f"PostgresSettings({self.shown_url!r}, pool_size={self.pool_size}, "
            f"connect_timeout_ms={self.connect_timeout_ms}, "
            f"statement_timeout_ms={self.statement_timeout_ms}, pooler={self.pooler})"
        )


PATIENCE_MS = 1_000
FILE_OPTIONS = ("sslrootcert", "sslcert", "sslkey", "sslcrl")


def check_url(url: str) -> None:
    """Raise a ValueError that says what is wrong, without quoting what may be a password."""
    scheme = url.partition("://")[0]
    if "://" not in url or scheme not in ("postgresql", "postgres"):
        raise ValueError(f"a database URL starts with postgresql://, as in {EXAMPLE}")
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ValueError(
            f"the database URL cannot be read: expected {EXAMPLE}; {ESCAPES}"
        ) from None
    if parts.netloc.count("@") > 1:
        raise ValueError(f"the database URL holds more than one @; {ESCAPES}")
    if parts.fragment or "#" in url:
        raise ValueError(f"the database URL holds a #; {ESCAPES}")
    for place in _places(parts):
        _, port = _host_and_port(place)
        if port and not (port.isascii() and port.isdecimal() and 1 <= int(port) <= 65535):
            raise ValueError(
                f"the port in the database URL must be a number from 1 to 65535, as in "
                f"{EXAMPLE}; {ESCAPES}"
            )
    for option, value in parse_qsl(parts.query):
        if option in FILE_OPTIONS and not os.access(value, os.R_OK):
            raise ValueError(f"{option} in the database URL: {value} is no file that can be read")


def _places(parts: SplitResult) -> list[str]:
    """The hosts with their ports: a URL may name several, for a failover."""
    return parts.netloc.rpartition("@")[2].split(",")


def _host_and_port(place: str) -> tuple[str, str]:
    if place.startswith("["):
        host, _, port = place.partition("]")
        return host + "]", port.removeprefix(":")
    host, _, port = place.partition(":")
    return host, port
