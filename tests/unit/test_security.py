"""How Kafka clients are told who they are, and whom to believe."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

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
