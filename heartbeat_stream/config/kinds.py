"""The kinds of value that a setting can have: how its text is read, and what would be right."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar
from urllib.parse import urlsplit

from heartbeat_stream.sinks.postgres_settings import ESCAPES, EXAMPLE, check_url
from heartbeat_stream.sinks.table import Table

T = TypeVar("T")

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?\.?"
_IPV6 = r"[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*(?:%[A-Za-z0-9_.-]+)?"
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


@dataclass(frozen=True)
class Kind(Generic[T]):
    """`parse` turns text into the value or raises ValueError; `wants` completes "want ..."."""

    parse: Callable[[str], T]
    wants: str
    metavar: str = "TEXT"


def integer(low: int, high: int | None = None, unit: str = "") -> Kind[int]:
    """A whole number in bounds, both inclusive."""

    def parse(text: str) -> int:
        # int() would take "1_000", " 7" and full-width digits as well.
        if not re.fullmatch(r"-?[0-9]{1,18}", text):
            raise ValueError
        value = int(text)
        if value < low or (high is not None and value > high):
            raise ValueError
        return value

    bounds = f"from {low} to {high}" if high is not None else f"{low} or more"
    return Kind(parse, f"a whole number{f' of {unit}' if unit else ''}, {bounds}", "N")


def milliseconds(low: int, high: int | None = None) -> Kind[int]:
    """A duration."""
    return integer(low, high, "milliseconds")


def boolean() -> Kind[bool]:
    """true or false, in the spellings of environment files."""
    words = {"true": True, "1": True, "yes": True, "on": True}
    words |= {"false": False, "0": False, "no": False, "off": False}

    def parse(text: str) -> bool:
        try:
            return words[text.lower()]
        except KeyError:
            raise ValueError from None

    return Kind(parse, "true or false", "true|false")


def choice(*values: str) -> Kind[str]:
    """One of a few words; upper and lower case don't matter."""
    by_lower = {value.lower(): value for value in values}

    def parse(text: str) -> str:
        try:
            return by_lower[text.lower()]
        except KeyError:
            raise ValueError from None

    return Kind(parse, "one of " + ", ".join(values), "WORD")


def names(*known: str) -> Kind[tuple[str, ...]]:
    """A comma-separated list out of known names, each once, at least one."""

    def parse(text: str) -> tuple[str, ...]:
        found = tuple(part.strip() for part in text.split(","))
        if not set(found) <= set(known) or len(set(found)) != len(found):
            raise ValueError
        return found

    return Kind(parse, "a comma-separated list out of: " + ", ".join(known), "NAMES")


def names_or_none(*known: str) -> Kind[tuple[str, ...]]:
    """The same, or the word "none" for an empty list."""
    some = names(*known)

    def parse(text: str) -> tuple[str, ...]:
        return () if text == "none" else some.parse(text)

    return Kind(parse, f"{some.wants}; or none", "NAMES")


def token() -> Kind[str]:
    """A secret that fits into an HTTP header, too long to be guessed."""

    def parse(text: str) -> str:
        if not re.fullmatch(r"[!-~]{16,1024}", text):
            raise ValueError
        return text

    return Kind(parse, "16 to 1024 letters, digits and signs of ASCII, without a space")


def origins() -> Kind[tuple[str, ...]]:
    """Origins as browsers send them: a scheme, a host, a port if it is not the scheme's own."""

    def parse(text: str) -> tuple[str, ...]:
        found = tuple(part.strip() for part in text.split(","))
        if not all(re.fullmatch(r"https?://[^\s/@?#*,]+", origin) for origin in found):
            raise ValueError
        return found

    return Kind(parse, "origins such as https://pages.example.com, joined by commas", "ORIGINS")


def optional(kind: Kind[T]) -> Kind[T | None]:
    """The same, or nothing."""

    def parse(text: str) -> T | None:
        return kind.parse(text) if text else None

    return Kind(parse, f"{kind.wants}, or nothing", kind.metavar)


def string() -> Kind[str]:
    """Any text but none, on one line."""

    def parse(text: str) -> str:
        if not text or not text.isprintable():
            raise ValueError
        return text

    return Kind(parse, "some text on one line")


def path() -> Kind[Path]:
    """A path; `~` is the home directory."""

    def parse(text: str) -> Path:
        if not text or "\0" in text:
            raise ValueError
        try:
            return Path(text).expanduser()
        except RuntimeError as exc:  # a user that does not exist
            raise ValueError from exc

    return Kind(parse, "a path", "PATH")


def brokers() -> Kind[tuple[str, ...]]:
    """host:port pairs; an IPv6 address stands in brackets."""

    def parse(text: str) -> tuple[str, ...]:
        servers = tuple(part.strip() for part in text.split(","))
        for server in servers:
            host, _, port = server.rpartition(":")
            if not re.fullmatch(rf"{_NAME}|\[{_IPV6}\]", host) or not _is_port(port):
                raise ValueError
        return servers

    return Kind(
        parse, "host:port, several joined by commas, an IPv6 address in brackets", "HOST:PORT"
    )


def topic() -> Kind[str]:
    """A name that Kafka takes for a topic."""

    def parse(text: str) -> str:
        if not _TOPIC.fullmatch(text) or text in {".", ".."}:
            raise ValueError
        return text

    return Kind(
        parse, "a topic name: 1 to 249 of letters, digits, dot, underscore and hyphen", "TOPIC"
    )


def instance_id() -> Kind[str]:
    """A member's name within its group, of what Kafka allows for a topic's name."""

    def parse(text: str) -> str:
        if len(text) > 200:  # something is joined to it, and 249 is the limit
            raise ValueError
        return topic().parse(text)

    return Kind(parse, "1 to 200 of letters, digits, dot, underscore and hyphen", "ID")


def app_id(longest_suffix: int) -> Kind[str]:
    """A prefix of topic names to which `longest_suffix` characters are joined."""
    limit = 249 - longest_suffix

    def parse(text: str) -> str:
        if not _TOPIC.fullmatch(text) or len(text) > limit or text in {".", ".."}:
            raise ValueError
        return text

    return Kind(
        parse,
        f"1 to {limit} of letters, digits, dot, underscore and hyphen (topics are named after it)",
        "ID",
    )


def table() -> Kind[str]:
    """`table` or `schema.table`; the sink's own reading of it decides."""

    def parse(text: str) -> str:
        Table.parse(text)
        return text

    return Kind(parse, "table or schema.table", "TABLE")


def host() -> Kind[str]:
    """An address to bind."""

    def parse(text: str) -> str:
        if not re.fullmatch(rf"{_NAME}|{_IPV6}", text):
            raise ValueError
        return text

    return Kind(parse, "a host name or an IP address", "HOST")


def database_url() -> Kind[str]:
    """`postgresql://...`; the sink's own reading of it decides."""

    def parse(text: str) -> str:
        if not text.isprintable():
            raise ValueError
        check_url(text)
        return text

    return Kind(parse, f"{EXAMPLE}; {ESCAPES}", "URL")


def redis_url() -> Kind[str]:
    """`redis://host:port/0`, or `rediss://` with TLS."""

    def parse(text: str) -> str:
        parts = urlsplit(text)
        if parts.scheme not in {"redis", "rediss"} or not parts.hostname or not text.isprintable():
            raise ValueError
        _ = parts.port  # raises ValueError where it is no port
        if not re.fullmatch(r"(?:/[0-9]{0,4})?", parts.path) or parts.fragment:
            raise ValueError
        return text

    return Kind(parse, "redis://:password@host:port/0, or rediss:// with TLS", "URL")


def web_url() -> Kind[str]:
    """`http://host:port`, without a trailing slash in the value; or nothing."""

    def parse(text: str) -> str:
        if not text:
            return text
        parts = urlsplit(text)
        if (
            parts.scheme not in {"http", "https"}
            or not parts.hostname
            or parts.path.strip("/")
            or parts.query
            or parts.fragment
        ):
            raise ValueError
        _ = parts.port  # raises ValueError where it is no port
        if parts.username or parts.password:
            raise ValueError
        return text.rstrip("/")

    return Kind(parse, "http://host:port or https://host:port", "URL")


def _is_port(text: str) -> bool:
    return bool(re.fullmatch(r"[0-9]{1,5}", text)) and 1 <= int(text) <= 65535
