"""The web view's port: the next free one, or exactly the one that was set."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from heartbeat_stream.commands import CommandError
from heartbeat_stream.settings import Settings
from heartbeat_stream.web.port import listen


@pytest.fixture
def taken() -> Iterator[int]:
    """A port on which somebody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_the_next_free_port_is_taken_where_none_was_set(taken: int) -> None:
    settings = Settings(web_port=taken)
    with listen(settings) as first, listen(settings) as second:
        ports = [first.getsockname()[1], second.getsockname()[1]]
    assert taken < ports[0] < ports[1]


def test_a_port_is_taken_before_anybody_answers_on_it() -> None:
    with listen(Settings()) as server, pytest.raises(OSError, match="in use"):
        socket.create_server(server.getsockname())


def test_a_port_that_was_set_and_is_taken_is_an_error_that_says_so(taken: int) -> None:
    settings = Settings.load({"HEARTBEAT_WEB_PORT": str(taken)})
    with pytest.raises(CommandError, match=f"HEARTBEAT_WEB_PORT={taken}.*set another port"):
        listen(settings)


def test_an_address_of_another_machine_is_an_error_that_names_it() -> None:
    with pytest.raises(CommandError, match=r"HEARTBEAT_WEB_HOST=192\.0\.2\.1: .*another address"):
        listen(Settings(web_host="192.0.2.1"))


def test_ports_end_at_65535() -> None:
    with listen(Settings(web_port=65_535)), pytest.raises(CommandError, match="no free port"):
        listen(Settings(web_port=65_535))
