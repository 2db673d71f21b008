"""Database URLs: which are taken, and that no message gives the password away."""

import pytest

from heartbeat_stream.sinks.postgres_settings import PostgresSettings


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://postgres@127.0.0.1:5432/postgres",
        "postgres://host/db",
        "postgresql://user:p%40ss%23@host:6432/db?sslmode=verify-full&sslrootcert=/dev/null",
        "postgresql://user:pw@one:5432,two:5433/db?target_session_attrs=read-write",
        "postgresql://[::1]:5432/db",
        "postgresql://[::1]/db",
        "postgresql:///db?host=/run/postgresql",
    ],
)
def test_right_urls(url: str) -> None:
    PostgresSettings(url)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("mysql://user:hunter2@host/db", "starts with postgresql://"),
        ("user:hunter2@host/db", "starts with postgresql://"),
        ("", "starts with postgresql://"),
        ("postgresql:hunter2", "starts with postgresql://"),
        ("postgresql://user:hunter2@host:port/db", "port"),
        ("postgresql://user:hunter2@and@host/db", "percent-encoded, as %40"),
        ("postgresql://user:hunter2@host:0/db", "port"),
        ("postgresql://user:hunter2@host:65536/db", "port"),
        ("postgresql://user:hunter2@host:²/db", "port"),
        ("postgresql://user:hunter2@one:5432,two:x/db", "port"),
        ("postgresql://user:hunter2/3@host/db", "percent-encoded"),
        ("postgresql://user:hunter2#3@host/db", "percent-encoded"),
        ("postgresql://user:hunter2[3@host/db", "percent-encoded"),
        ("postgresql://user:hunter2@host/db?sslrootcert=/no/ca.crt", "/no/ca.crt is no file"),
    ],
)
def test_wrong_urls_are_named_without_their_password(url: str, says: str) -> None:
    with pytest.raises(ValueError, match=says) as raised:
        PostgresSettings(url)
    assert "hunter2" not in str(raised.value)
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__ or raised.value.__context__ is None


@pytest.mark.parametrize("name", ["pool_size", "connect_timeout_ms", "statement_timeout_ms"])
def test_numbers_below_one_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        PostgresSettings("postgresql://host/db", **{name: 0})  # type: ignore[arg-type]


def test_shown_without_its_passwords() -> None:
    settings = PostgresSettings("postgresql://me:hunter2@host:5432/db?sslpassword=hunter2")
    assert settings.shown_url.startswith("postgresql://me:***@host:5432/db")
    assert "hunter2" not in settings.shown_url
    assert "hunter2" not in repr(settings)
    assert "hunter2" not in str(settings)
