"""How a client shows the brokers who it is, and knows who they are."""

from __future__ import annotations

import ssl
from typing import Any

from heartbeat_stream.settings import Settings, SettingsError

__all__ = ["kafka_auth"]


def kafka_auth(settings: Settings) -> dict[str, Any]:
    """The arguments of security for aiokafka's consumer, producer and admin client alike.

    Reads the certificate files. Raises SettingsError, which names the file that is wrong.
    """
    auth: dict[str, Any] = {"security_protocol": settings.kafka_security_protocol}
    if settings.kafka_security_protocol.endswith("SSL"):
        auth["ssl_context"] = _ssl_context(settings)
    if settings.kafka_security_protocol.startswith("SASL"):
        auth["sasl_mechanism"] = settings.kafka_sasl_mechanism
        auth["sasl_plain_username"] = settings.kafka_username
        auth["sasl_plain_password"] = settings.kafka_password
    return auth


def _ssl_context(settings: Settings) -> ssl.SSLContext:
    """Brokers must show a certificate for the name under which they are reached."""
    try:
        context = ssl.create_default_context(cafile=settings.kafka_ca_file)
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
