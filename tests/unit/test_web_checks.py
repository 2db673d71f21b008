"""What `check` says of the web view."""

from __future__ import annotations

import pytest

from heartbeat_stream.checks.web_view import check_web_view
from heartbeat_stream.settings import Settings

TOKEN = "a-token-of-enough-length"


@pytest.mark.parametrize(
    ("environ", "says"),
    [
        ({}, "ok    web view on 127.0.0.1: for this machine alone, without a token"),
        ({"WEB_HOST": "0.0.0.0"}, "FAIL  HEARTBEAT_WEB_HOST=0.0.0.0: other machines"),
        (
            {"WEB_HOST": "0.0.0.0", "WEB_TOKEN": TOKEN},
            "ok    web view on 0.0.0.0: for other machines, too, with a token; "
            "health and metrics without it",
        ),
        (
            {"WEB_TOKEN": TOKEN, "WEB_OPEN": "none"},
            "ok    web view on 127.0.0.1: for this machine alone, with a token; nothing without it",
        ),
    ],
)
def test_who_may_look(environ: dict[str, str], says: str) -> None:
    settings = Settings.load({f"HEARTBEAT_{name}": value for name, value in environ.items()})
    (line,) = map(str, check_web_view(settings))
    assert line.startswith(says)
    assert TOKEN not in line
