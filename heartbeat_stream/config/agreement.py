"""Values that are each right and don't go together."""

from __future__ import annotations

import ipaddress
from dataclasses import fields
from typing import TYPE_CHECKING

from heartbeat_stream.config.sources import SettingsError

if TYPE_CHECKING:
    from heartbeat_stream.settings import Settings


OAUTHBEARER = "OAUTHBEARER"


def check_agreement(settings: Settings) -> None:
    """Raise SettingsError for the first contradiction."""
    _check_topics(settings)
    _check_kafka_security(settings)
    _check_collector(settings)


#: What the names of a worker's own topics end with; they begin with its app id.
_OWN = ("-repartition", "-changelog")


def _check_topics(settings: Settings) -> None:
    """What a worker writes must not come back to it as its input."""
    sources = {_source(settings, job) for job in settings.jobs}
    for field, name in _named_topics(settings).items():
        variable = f"HEARTBEAT_{field.upper()}"
        if name.startswith(f"{settings.app_id}-") and name.endswith(_OWN):
            raise SettingsError(
                f'{variable}: "{name}" is a name for a topic of the worker\'s own: want another one'
            )
        if name in sources and not _is_source(field):
            raise SettingsError(f'{variable}: "{name}" is a source topic too: want another one')


def _named_topics(settings: Settings) -> dict[str, str]:
    """The topics that a user may name, by the field."""
    names = (one.name for one in fields(settings))
    values = {name: getattr(settings, name) for name in names if f"_{name}".endswith("_topic")}
    return {field: name for field, name in values.items() if name is not None}


def _is_source(field: str) -> bool:
    return field in ("topic", "market_topic", "messages_topic", "tracking_topic")


def _source(settings: Settings, job: str) -> str:
    return str(getattr(settings, "topic" if job == "heartbeats" else f"{job}_topic"))


def _check_collector(settings: Settings) -> None:
    if settings.collect_claim_ms <= settings.collect_ack_wait_ms:
        raise SettingsError(
            f"HEARTBEAT_COLLECT_CLAIM_MS: {settings.collect_claim_ms} ends before Kafka's "
            f"acknowledgement may come: want more than HEARTBEAT_COLLECT_ACK_WAIT_MS, "
            f"{settings.collect_ack_wait_ms}"
        )
    if settings.tracking_topic in (settings.dead_letter_topic, settings.topic):
        raise SettingsError(
            f'HEARTBEAT_TRACKING_TOPIC: "{settings.tracking_topic}" is another topic too: want '
            "one of its own"
        )


def _check_kafka_security(settings: Settings) -> None:
    protocol = settings.kafka_security_protocol
    about = "HEARTBEAT_KAFKA_SECURITY_PROTOCOL"
    _check_login(settings, about)
    files = settings.kafka_ca_file, settings.kafka_cert_file, settings.kafka_key_file
    if not protocol.endswith("SSL") and any(files):
        raise SettingsError(
            f"{about}: {protocol} uses no certificates, and HEARTBEAT_KAFKA_*_FILE names some: "
            "want SSL or SASL_SSL"
        )
    if (settings.kafka_cert_file is None) != (settings.kafka_key_file is None):
        raise SettingsError("HEARTBEAT_KAFKA_CERT_FILE and HEARTBEAT_KAFKA_KEY_FILE: want both")


def _check_login(settings: Settings, about: str) -> None:
    protocol = settings.kafka_security_protocol
    login = bool(settings.kafka_username), bool(settings.kafka_password)
    token = settings.kafka_token_file is not None
    by_token = settings.kafka_sasl_mechanism == OAUTHBEARER
    if not protocol.startswith("SASL"):
        if any(login) or token:
            raise SettingsError(
                f"{about}: {protocol} uses no user name, no password and no token, and one is "
                "given: want SASL_SSL or SASL_PLAINTEXT"
            )
        return
    if by_token and not token:
        raise SettingsError(
            f"{about}: {protocol} with OAUTHBEARER needs HEARTBEAT_KAFKA_TOKEN_FILE"
        )
    if by_token and any(login):
        raise SettingsError(
            "HEARTBEAT_KAFKA_SASL_MECHANISM: OAUTHBEARER uses a token, and a user name or a "
            "password is given: want SCRAM-SHA-256, SCRAM-SHA-512 or PLAIN, or neither of them"
        )
    if not by_token and token:
        raise SettingsError(
            f"HEARTBEAT_KAFKA_TOKEN_FILE: {settings.kafka_sasl_mechanism} uses no token: "
            "want HEARTBEAT_KAFKA_SASL_MECHANISM=OAUTHBEARER"
        )
    if not by_token and not all(login):
        raise SettingsError(
            f"{about}: {protocol} needs HEARTBEAT_KAFKA_USERNAME and HEARTBEAT_KAFKA_PASSWORD "
            "(or HEARTBEAT_KAFKA_PASSWORD_FILE)"
        )


def check_web_exposure(settings: Settings) -> None:
    """Raise SettingsError where a worker would show its state to other machines without a token."""
    if settings.web_token is None and not is_loopback(settings.web_host):
        raise SettingsError(
            f"HEARTBEAT_WEB_HOST={settings.web_host}: other machines reach the web view there, and "
            "no token guards it: set HEARTBEAT_WEB_TOKEN or HEARTBEAT_WEB_TOKEN_FILE (openssl rand "
            "-hex 24 makes one), or HEARTBEAT_WEB_HOST=127.0.0.1"
        )


def is_loopback(host: str) -> bool:
    """Whether an address to bind is this machine's alone. Other names than localhost are not."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host.rstrip(".").lower() == "localhost"
