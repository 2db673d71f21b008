"""How a client shows the brokers who it is, and knows who they are."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import SaslAuthenticationFailed

from heartbeat_stream.config.agreement import OAUTHBEARER
from heartbeat_stream.config.sources import read_secret_file
from heartbeat_stream.settings import Settings, SettingsError

__all__ = ["TokenFile", "kafka_auth"]

_TOKEN_FILE = "HEARTBEAT_KAFKA_TOKEN_FILE"


class TokenFile(AbstractTokenProvider):  # type: ignore[misc]
    """The token that stands in a file at the moment, for each connection that is opened.

    Somebody else keeps it fresh. Raises SettingsError where there is none at first.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        read_secret_file(_TOKEN_FILE, path)

    async def token(self) -> str:
        """Raises SaslAuthenticationFailed, which the clients take as a reason to try again."""
        try:
            return read_secret_file(_TOKEN_FILE, self._path)
        except SettingsError as error:
            raise SaslAuthenticationFailed(str(error)) from error


def kafka_auth(settings: Settings) -> dict[str, Any]:
    """The arguments of security for aiokafka's consumer, producer and admin client alike.

    Reads the certificate files. Raises SettingsError, which names the file that is wrong.
    """
    auth: dict[str, Any] = {"security_protocol": settings.kafka_security_protocol}
    if settings.kafka_security_protocol.endswith("SSL"):
        auth["ssl_context"] = _ssl_context(settings)
    if settings.kafka_security_protocol.startswith("SASL"):
        auth["sasl_mechanism"] = settings.kafka_sasl_mechanism
        auth |= _login(settings)
    return auth


def _login(settings: Settings) -> dict[str, Any]:
    if settings.kafka_sasl_mechanism == OAUTHBEARER and settings.kafka_token_file is not None:
        return {"sasl_oauth_token_provider": TokenFile(settings.kafka_token_file)}
    return {
        "sasl_plain_username": settings.kafka_username,
        "sasl_plain_password": settings.kafka_password,
    }


def _ssl_context(settings: Settings) -> ssl.SSLContext:
    """Brokers must show a certificate for the name under which they are reached."""
    try:
        context = ssl.create_default_context(cafile=settings.kafka_ca_file)
        context.minimum_version = max(context.minimum_version, ssl.TLSVersion.TLSv1_2)
    except OSError as error:  # ssl.SSLError is one
        wants = "want certificates in PEM form"
        raise _unusable("HEARTBEAT_KAFKA_CA_FILE", settings.kafka_ca_file, error, wants) from error
    if settings.kafka_cert_file is not None and settings.kafka_key_file is not None:
        try:
            # An encrypted key would have OpenSSL ask for its password on the terminal.
            context.load_cert_chain(
                settings.kafka_cert_file, settings.kafka_key_file, password=_no_password
            )
        except OSError as error:
            where = f"{settings.kafka_cert_file} and {settings.kafka_key_file}"
            names = "HEARTBEAT_KAFKA_CERT_FILE and HEARTBEAT_KAFKA_KEY_FILE"
            wants = "want PEM, the key not encrypted and that of the certificate"
            raise _unusable(names, where, error, wants) from error
    return context


def _no_password() -> str:
    return ""


def _unusable(variables: str, where: object, error: OSError, wants: str) -> SettingsError:
    # OpenSSL's own words, as "PEM lib", help nobody.
    reason = wants if isinstance(error, ssl.SSLError) else error.strerror
    return SettingsError(f"{variables}: {where} cannot be used: {reason}")
