"""Passwords in URLs: hidden where people see them, put in where they come from a file."""

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


def with_password(url: str, password: str) -> str | None:
    """The URL with this password; None where it has one already or names no user."""
    parts = urlsplit(url)
    user, at, place = parts.netloc.rpartition("@")
    if not at or not user or ":" in user or _PASSWORD_OPTION.search(url):
        return None
    return urlunsplit(parts._replace(netloc=f"{user}:{quote(password, safe='')}@{place}"))
