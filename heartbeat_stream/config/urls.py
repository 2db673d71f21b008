"""URLs as people type them. Passwords in them are hidden where people see them, and put in where
they come from a file."""

from __future__ import annotations

import re
from urllib.parse import quote, urlsplit, urlunsplit

# As an option of a URL, and as libpq has it in its other form: "host=x password='y z'".
_PASSWORD_OPTION = re.compile(r"(?i)(password\s*=\s*)(?:'[^']*'|[^&#\s]*)")


def redact_url(url: str) -> str:
    """The URL with `***` for each password in it, whatever else may be wrong with it."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "", url
    # The last @ ends the user part: a password may hold others that were not encoded.
    user, at, place = rest.rpartition("@")
    name, colon, _ = user.partition(":")
    rest = f"{name}{colon and ':***'}{at}{place}"
    return _PASSWORD_OPTION.sub(r"\1***", f"{scheme}{separator}{rest}")


def worker_address(text: str) -> str:
    """`http://host:port` of a web view, out of any address there, as that of the page.

    Raises ValueError, whose message says what is wanted.
    """
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        host, port = parts.hostname, parts.port  # raises ValueError where it is no port
    except ValueError:
        host = None
    if not host or parts.scheme not in {"http", "https"} or "@" in parts.netloc:
        raise ValueError(f"{redact_url(text)!r} is wrong: want http://host:port of a worker")
    name = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{name}" + (f":{port}" if port is not None else "")


def with_password(url: str, password: str) -> str | None:
    """The URL with this password; None where it has one already or names no user."""
    parts = urlsplit(url)
    user, at, place = parts.netloc.rpartition("@")
    if not at or not user or ":" in user or _PASSWORD_OPTION.search(url):
        return None
    return urlunsplit(parts._replace(netloc=f"{user}:{quote(password, safe='')}@{place}"))
