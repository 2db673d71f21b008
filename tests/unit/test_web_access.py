"""The token and the passes made with it, with a clock that is moved by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heartbeat_stream.config.agreement import check_web_exposure, is_loopback
from heartbeat_stream.settings import Settings, SettingsError
from heartbeat_stream.web.access import ROUTED_PASS_S, Access

TOKEN = "a-token-of-enough-length"
NOW = 1_700_000_000_000


class Clock:
    now = NOW

    def __call__(self) -> int:
        return self.now


def bearer(text: str | None) -> str:
    return f"Bearer {text}"


def test_without_a_token_everybody_is_let_in() -> None:
    access = Access(None, Clock())
    assert not access.guarded
    assert access.admits(None, None)
    assert access.new_pass(60) is None
    assert access.authorization() == {}
    assert not access.is_token("")


def test_the_token_lets_in() -> None:
    access = Access(TOKEN, Clock())
    assert access.guarded
    for header in (bearer(TOKEN), f"bearer {TOKEN}", f"BEARER   {TOKEN} "):
        assert access.admits(header, None)
    assert access.is_token(TOKEN)
    assert not access.admits(None, None)
    # The token is no pass: it would stay in the browser.
    assert not access.admits(None, TOKEN)


def test_a_pass_lets_in_until_it_ends() -> None:
    clock = Clock()
    access = Access(TOKEN, clock)
    made = access.new_pass(60)
    assert made is not None
    assert TOKEN not in made
    assert access.admits(None, made)
    assert access.admits(bearer(made), None)
    clock.now = NOW + 59_999
    assert access.admits(None, made)
    clock.now = NOW + 60_000
    assert not access.admits(None, made)
    assert not access.is_token(made)


def test_a_pass_is_good_at_every_worker_with_the_same_token_and_at_no_other() -> None:
    made = Access(TOKEN, Clock()).authorization()["Authorization"]
    behind = Clock()
    behind.now = NOW - 200_000
    assert Access(TOKEN, Clock()).admits(made, None)
    assert Access(TOKEN, behind).admits(made, None)
    assert not Access(TOKEN + "x", Clock()).admits(made, None)
    ahead = Clock()
    ahead.now = NOW + ROUTED_PASS_S * 1000
    assert not Access(TOKEN, ahead).admits(made, None)


@given(st.text() | st.binary().map(lambda raw: raw.decode("utf-8", "surrogateescape")))
def test_anything_else_does_not(text: str) -> None:
    access = Access(TOKEN, Clock())
    made = access.new_pass(60) or ""
    expiry, _, signature = made.partition(".")
    forged = (
        text,
        f"{expiry}.{text}",
        f"{text}.{signature}",
        f"{made}{text or '0'}",
        f"{text}{made}",
    )
    for one in forged:
        if one not in (TOKEN, made):
            assert not access.admits(bearer(one), one) or one.strip() in (TOKEN, made)
    assert not access.admits(text, None)


# --- who needs a token


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost", "LOCALHOST."])
def test_on_loopback_a_worker_needs_no_token(host: str) -> None:
    assert is_loopback(host)
    check_web_exposure(Settings(web_host=host))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "fe80::1%eth0", "worker-1"])
def test_elsewhere_it_does(host: str) -> None:
    with pytest.raises(SettingsError, match=f"HEARTBEAT_WEB_HOST={host}: .*HEARTBEAT_WEB_TOKEN"):
        check_web_exposure(Settings(web_host=host))
    check_web_exposure(Settings(web_host=host, web_token=TOKEN))
