"""How Kafka clients are told who they are, and whom to believe."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from aiokafka.errors import SaslAuthenticationFailed

from heartbeat_stream.settings import Settings, SettingsError
from heartbeat_stream.streaming.security import kafka_auth

LOGIN = {"HEARTBEAT_KAFKA_USERNAME": "reader", "HEARTBEAT_KAFKA_PASSWORD": "hunter2"}


def auth_of(protocol: str, **variables: str) -> dict[str, object]:
    environ = {f"HEARTBEAT_KAFKA_{name}": value for name, value in variables.items()}
    login = LOGIN if protocol.startswith("SASL") else {}
    return kafka_auth(
        Settings.load({"HEARTBEAT_KAFKA_SECURITY_PROTOCOL": protocol, **login, **environ})
    )


def test_plaintext_needs_nothing() -> None:
    assert auth_of("PLAINTEXT") == {"security_protocol": "PLAINTEXT"}


def test_a_login_without_encryption() -> None:
    assert auth_of("SASL_PLAINTEXT", SASL_MECHANISM="scram-sha-512") == {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "reader",
        "sasl_plain_password": "hunter2",
    }


def token_file(tmp_path: Path, text: str) -> dict[str, str]:
    path = tmp_path / "token"
    path.write_text(text)
    return {
        "HEARTBEAT_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
        "HEARTBEAT_KAFKA_SASL_MECHANISM": "OAUTHBEARER",
        "HEARTBEAT_KAFKA_TOKEN_FILE": str(path),
    }


async def test_a_token_is_read_anew_for_each_connection(tmp_path: Path) -> None:
    auth = kafka_auth(Settings.load(token_file(tmp_path, "first\n")))
    assert auth["sasl_mechanism"] == "OAUTHBEARER"
    assert "sasl_plain_username" not in auth
    provider = auth["sasl_oauth_token_provider"]
    assert await provider.token() == "first"
    (tmp_path / "token").write_text("second\n")
    assert await provider.token() == "second"
    (tmp_path / "token").unlink()
    with pytest.raises(SaslAuthenticationFailed, match="HEARTBEAT_KAFKA_TOKEN_FILE"):
        await provider.token()


def test_a_token_file_that_is_none(tmp_path: Path) -> None:
    settings = Settings.load(token_file(tmp_path, ""))
    with pytest.raises(SettingsError, match=r"HEARTBEAT_KAFKA_TOKEN_FILE: .* one line"):
        kafka_auth(settings)


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"SECURITY_PROTOCOL": "SASL_SSL", "SASL_MECHANISM": "OAUTHBEARER"}, "needs .*TOKEN_FILE"),
        ({"SECURITY_PROTOCOL": "SSL", "TOKEN_FILE": "x"}, "want SASL_SSL or SASL_PLAINTEXT"),
        ({"SECURITY_PROTOCOL": "SASL_SSL", "TOKEN_FILE": "x"}, "PLAIN uses no token"),
        (
            {
                "SECURITY_PROTOCOL": "SASL_SSL",
                "SASL_MECHANISM": "OAUTHBEARER",
                "TOKEN_FILE": "x",
                "USERNAME": "reader",
            },
            "OAUTHBEARER uses a token, and a user name",
        ),
    ],
)
def test_a_token_and_what_does_not_go_with_it(variables: dict[str, str], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        Settings.load({f"HEARTBEAT_KAFKA_{name}": value for name, value in variables.items()})


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_brokers_must_prove_their_name(protocol: str) -> None:
    context = auth_of(protocol)["ssl_context"]
    assert isinstance(context, ssl.SSLContext)
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "No such file or directory"), ("", "want certificates in PEM form"),
     ("no certificate\n", "want certificates in PEM form")],
)  # fmt: skip
def test_a_file_of_authorities_that_is_none(
    tmp_path: Path, content: str | None, reason: str
) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)
    with pytest.raises(SettingsError) as caught:
        auth_of("SSL", CA_FILE=str(path))
    assert str(caught.value) == f"HEARTBEAT_KAFKA_CA_FILE: {path} cannot be used: {reason}"


def test_a_client_certificate_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "cert").write_text("x")
    with pytest.raises(SettingsError, match=r"HEARTBEAT_KAFKA_KEY_FILE: .* cannot be used"):
        auth_of("SSL", CERT_FILE=str(tmp_path / "cert"), KEY_FILE=str(tmp_path / "key"))
