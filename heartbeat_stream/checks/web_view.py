"""Who will be able to look at a worker?"""

from __future__ import annotations

from collections.abc import Iterator

from heartbeat_stream.checks.finding import Finding, fail, ok
from heartbeat_stream.config.agreement import check_web_exposure, is_loopback
from heartbeat_stream.settings import Settings, SettingsError


def check_web_view(settings: Settings) -> Iterator[Finding]:
    """Whether a worker would open its web view, and to whom."""
    try:
        check_web_exposure(settings)
    except SettingsError as error:
        yield fail(str(error))
        return
    here = "this machine alone" if is_loopback(settings.web_host) else "other machines, too"
    if settings.web_token is None:
        yield ok(f"web view on {settings.web_host}: for {here}, without a token")
        return
    opened = " and ".join(settings.web_open) or "nothing"
    yield ok(f"web view on {settings.web_host}: for {here}, with a token; {opened} without it")
