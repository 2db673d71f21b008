"""Why no broker can be used, in words that say what to do.

aiokafka's clients try every broker and then only tell that none could be reached; the reason went
into their log. So, once something has failed, it is asked for here with a connection of its own.

Relied upon in aiokafka 0.14: ``create_conn`` raises what stood in the way, with the TLS library's
error as it is or as the cause.
"""

from __future__ import annotations

import asyncio
import ssl

from aiokafka.conn import AIOKafkaConnection, create_conn
from aiokafka.errors import (
    KafkaError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)
from aiokafka.protocol.metadata import MetadataRequest

from heartbeat_stream.config.agreement import OAUTHBEARER
from heartbeat_stream.settings import Settings
from heartbeat_stream.streaming.security import kafka_auth
from heartbeat_stream.tls import is_another_hosts, words_about

__all__ = ["nobody_answers", "why_unreachable"]

_PATIENCE_MS = 5_000
_MOST_CHARACTERS = 200


async def why_unreachable(settings: Settings) -> str:
    """One line: what is wrong between us and the brokers, and what to do. Never a secret.

    Opens a connection to each broker of the settings, until one tells more than that it is away,
    and waits for each 5 s at most. Raises SettingsError as kafka_auth does.
    """
    for broker in settings.brokers:
        host, _, port = broker.rpartition(":")
        try:
            async with asyncio.timeout(_PATIENCE_MS / 1000):
                reason = await _ask(settings, broker, host.strip("[]"), int(port))
        except TimeoutError:
            continue
        if reason is not None:
            return reason
    return nobody_answers(settings)


def nobody_answers(settings: Settings) -> str:
    """What to say, and to do, where no broker answers."""
    return (
        f"no Kafka broker answers at {','.join(settings.brokers)}: start it, or set "
        "HEARTBEAT_BROKERS and HEARTBEAT_KAFKA_SECURITY_PROTOCOL"
    )


async def _ask(settings: Settings, broker: str, host: str, port: int) -> str | None:
    """None where nobody answers, or nothing is wrong with this one."""
    connection: AIOKafkaConnection | None = None
    try:
        connection = await create_conn(
            host,
            port,
            client_id=f"{settings.app_id}-diagnosis",
            request_timeout_ms=_PATIENCE_MS,
            **kafka_auth(settings),
        )
        answer = await connection.send(MetadataRequest([]))
        # A login that was refused and not understood: then each request gets an empty answer.
        return None if answer.brokers else _refused_after_login(settings, broker)
    except (OSError, KafkaError) as error:
        return _reason(settings, broker, error, greeted=connection is not None)
    finally:
        if connection is not None:
            connection.close()


def _reason(settings: Settings, broker: str, error: Exception, *, greeted: bool) -> str | None:
    cause = _tls_error(error)
    if cause is not None:
        return _tls_reason(settings, broker, cause)
    login = _login_reason(settings, broker, error)
    if login is not None:
        return login
    if isinstance(error, ConnectionResetError) and settings.kafka_security_protocol.endswith("SSL"):
        return _no_tls(broker, "it hangs up")
    if isinstance(error, OSError):
        return None  # refused, no such name, no way there
    if greeted:
        return _refused_after_login(settings, broker)
    return _hangs_up(broker)


def _refused_after_login(settings: Settings, broker: str) -> str:
    if not (
        settings.kafka_security_protocol.startswith("SASL")
        and settings.kafka_sasl_mechanism == OAUTHBEARER
    ):
        return _hangs_up(broker)
    # A broker says that a token is refused in a way that aiokafka does not read.
    return (
        f"the broker at {broker} refuses the token in HEARTBEAT_KAFKA_TOKEN_FILE: it may have "
        "expired, or be meant for others"
    )


def _hangs_up(broker: str) -> str:
    return (
        f"the broker at {broker} hangs up: it may want TLS, a client's certificate or a login, see "
        "HEARTBEAT_KAFKA_SECURITY_PROTOCOL"
    )


def _tls_error(error: BaseException) -> ssl.SSLError | None:
    at: BaseException | None = error
    while at is not None and not isinstance(at, ssl.SSLError):
        at = at.__cause__
    return at


def _tls_reason(settings: Settings, broker: str, error: ssl.SSLError) -> str:
    if not isinstance(error, ssl.SSLCertVerificationError):
        said = error.reason or type(error).__name__
        if "CERT" not in said:
            return _no_tls(broker, said)
        return (
            f"no TLS with the broker at {broker} ({said}): HEARTBEAT_KAFKA_CERT_FILE and "
            "HEARTBEAT_KAFKA_KEY_FILE must show a certificate that it trusts"
        )
    shown = f"the certificate of the broker at {broker}"
    said = words_about(error)
    if is_another_hosts(error):
        return f"{shown} is another host's ({said}): name the host in HEARTBEAT_BROKERS as it does"
    authorities = settings.kafka_ca_file or "the system's authorities"
    return (
        f"{shown} is not trusted ({said}): HEARTBEAT_KAFKA_CA_FILE must name the certificates of "
        f"the authority that signed it, and is {authorities}"
    )


def _no_tls(broker: str, said: str) -> str:
    return (
        f"no TLS with the broker at {broker} ({said}): HEARTBEAT_KAFKA_SECURITY_PROTOCOL and the "
        "port in HEARTBEAT_BROKERS must belong together"
    )


def _login_reason(settings: Settings, broker: str, error: Exception) -> str | None:
    mechanism = settings.kafka_sasl_mechanism
    if isinstance(error, UnsupportedSaslMechanismError):
        return (
            f"the broker at {broker} knows no login by {mechanism}: set "
            "HEARTBEAT_KAFKA_SASL_MECHANISM to one that it does"
        )
    if not isinstance(error, SaslAuthenticationFailed):
        return None
    if mechanism == OAUTHBEARER:
        return (
            f"the broker at {broker} refuses the token of HEARTBEAT_KAFKA_TOKEN_FILE "
            f"({_one_line(error)})"
        )
    return (
        f"the broker at {broker} refuses the login of {settings.kafka_username} by {mechanism}: "
        "set HEARTBEAT_KAFKA_USERNAME and HEARTBEAT_KAFKA_PASSWORD or HEARTBEAT_KAFKA_PASSWORD_FILE"
    )


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 3] + "..."
