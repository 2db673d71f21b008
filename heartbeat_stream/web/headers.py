"""The headers that every answer of the web view carries, and those for pages of other origins."""

from collections.abc import Collection, MutableMapping
from typing import Final

from aiohttp.web import BaseRequest, Response

__all__ = ["allow_origin", "preflight", "protect"]

#: A page of ours loads nothing but its own files, runs no script but those, and cannot be framed.
_CONTENT_SECURITY_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
_PROTECTION: Final = {
    "Content-Security-Policy": _CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    # Versions of what runs here are nobody's business.
    "Server": "heartbeat-stream",
}


def protect(headers: MutableMapping[str, str]) -> None:
    """Put the protection into an answer's headers. What it says of its caching stays."""
    headers.update(_PROTECTION)
    headers.setdefault("Cache-Control", "no-store")


def allow_origin(
    request: BaseRequest, headers: MutableMapping[str, str], origins: Collection[str]
) -> None:
    """Let scripts of a page read an answer, where the page's origin is one of these."""
    if not origins:
        return
    headers["Vary"] = "Origin"
    origin = request.headers.get("Origin")
    if origin is not None and origin in origins:
        headers["Access-Control-Allow-Origin"] = origin


def preflight(request: BaseRequest, origins: Collection[str]) -> Response | None:
    """The answer to a browser that asks whether it may ask; None for any other request."""
    if request.method != "OPTIONS" or request.headers.get("Origin") not in origins:
        return None
    if "Access-Control-Request-Method" not in request.headers:
        return None
    return Response(
        status=204,
        headers={
            "Access-Control-Allow-Methods": "GET, HEAD",
            "Access-Control-Allow-Headers": "Authorization",
            "Access-Control-Max-Age": "600",
        },
    )
