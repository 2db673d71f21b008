"""An Apache Kafka with TLS, logins and ACLs: one for all tests of these.

Its listeners: PLAINTEXT for the tests themselves, TLS, MUTUAL (clients must show a certificate) and
LOGIN (TLS, and a login by any mechanism). The certificate is for ``localhost`` alone, so that
127.0.0.1 is a wrong name. The users of ``SUPER_USERS`` may do everything; ``INIT_USER`` and
``WORKER_USER`` only what ACLs allow.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from heartbeat_stream.local.apache_kafka import ApacheKafka
from heartbeat_stream.local.process import LOOPBACK, free_port
from tests.support.apache_kafka import PATIENT
from tests.support.certificates import Authority, KeyPair

__all__ = ["INIT_USER", "PASSWORD", "WORKER_USER", "SecureKafka", "unsecured_token"]

INIT_USER, WORKER_USER = "heartbeat-init", "heartbeat-worker"
PASSWORD = "correct-horse-7"
SUPER_USERS = ("ANONYMOUS", "plain", "scram-256", "scram-512", "token", "CN=mutual")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")

_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_TOKEN_SECONDS = 3600
SESSION_MS = 2000


@dataclass(frozen=True)
class SecureKafka:
    """The running cluster, and what its clients need."""

    kafka: ApacheKafka
    authority: Authority
    client: KeyPair  #: the certificate of ``CN=mutual``
    tls_port: int
    mutual_port: int
    login_port: int

    def tls(self, host: str = "localhost") -> dict[str, str]:
        """The settings of a client that only wants encryption."""
        return {
            "HEARTBEAT_BROKERS": f"{host}:{self.tls_port}",
            "HEARTBEAT_KAFKA_SECURITY_PROTOCOL": "SSL",
            "HEARTBEAT_KAFKA_CA_FILE": str(self.authority.file),
        }

    def mutual(self) -> dict[str, str]:
        """Those of one that shows a certificate."""
        return {
            **self.tls(),
            "HEARTBEAT_BROKERS": f"localhost:{self.mutual_port}",
            "HEARTBEAT_KAFKA_CERT_FILE": str(self.client.certificate),
            "HEARTBEAT_KAFKA_KEY_FILE": str(self.client.key),
        }

    def login(self, mechanism: str, user: str, password: str = PASSWORD) -> dict[str, str]:
        """Those of one that logs in with a password."""
        return {
            **self._by_login(mechanism),
            "HEARTBEAT_KAFKA_USERNAME": user,
            "HEARTBEAT_KAFKA_PASSWORD": password,
        }

    def token(self, file: Path) -> dict[str, str]:
        """Those of one that logs in with the token in a file."""
        return {**self._by_login("OAUTHBEARER"), "HEARTBEAT_KAFKA_TOKEN_FILE": str(file)}

    def _by_login(self, mechanism: str) -> dict[str, str]:
        return {
            **self.tls(),
            "HEARTBEAT_BROKERS": f"localhost:{self.login_port}",
            "HEARTBEAT_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
            "HEARTBEAT_KAFKA_SASL_MECHANISM": mechanism,
        }


def unsecured_token(subject: str, valid_s: float = _TOKEN_SECONDS) -> str:
    """A token without a signature, which Kafka takes where nothing else is set."""
    now = time.time()
    claims = {"sub": subject, "iat": now - 60 + min(0, valid_s), "exp": now + valid_s}
    parts = (json.dumps(part).encode() for part in ({"alg": "none"}, claims))
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts) + "."


@pytest.fixture(scope="module")
def secure_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    """The cluster. Use names of your own for topics and groups."""
    directory = tmp_path_factory.mktemp("secure-kafka")
    authority = Authority(directory)
    broker = authority.issue("broker", "localhost")
    store = directory / "broker-store.pem"
    store.write_bytes(broker.key.read_bytes() + broker.certificate.read_bytes())
    kafka = ApacheKafka(extra_config=PATIENT, format_options=_scram_users())
    ports = {name: free_port() for name in ("TLS", "MUTUAL", "LOGIN")}
    kafka._extra_config |= {**_listeners(kafka, ports), **_stores(store, authority), **_logins()}
    client = authority.issue("mutual")
    with kafka:
        yield SecureKafka(kafka, authority, client, ports["TLS"], ports["MUTUAL"], ports["LOGIN"])


def _scram_users() -> list[str]:
    users = [
        ("SCRAM-SHA-256", "scram-256"),
        ("SCRAM-SHA-512", "scram-512"),
        ("SCRAM-SHA-512", INIT_USER),
        ("SCRAM-SHA-512", WORKER_USER),
    ]
    options = []
    for mechanism, user in users:
        options += ["--add-scram", f"{mechanism}=[name={user},password={PASSWORD}]"]
    return options


def _listeners(kafka: ApacheKafka, ports: dict[str, int]) -> dict[str, str]:
    (node,) = kafka.nodes
    plain = f"PLAINTEXT://{LOOPBACK}:{node.port}"
    controller = f"CONTROLLER://{LOOPBACK}:{node.controller_port}"
    bound = [f"{name}://{LOOPBACK}:{port}" for name, port in ports.items()]
    told = [f"{name}://localhost:{port}" for name, port in ports.items()]
    protocols = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,TLS:SSL,MUTUAL:SSL,LOGIN:SASL_SSL"
    return {
        "listeners": ",".join([plain, *bound, controller]),
        "advertised.listeners": ",".join([plain, *told]),
        "listener.security.protocol.map": protocols,
    }


def _stores(store: Path, authority: Authority) -> dict[str, str]:
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.file),
        "listener.name.mutual.ssl.client.auth": "required",
    }


def _logins() -> dict[str, str]:
    listener = "listener.name.login"
    return {
        f"{listener}.sasl.enabled.mechanisms": ",".join(MECHANISMS),
        f"{listener}.plain.sasl.jaas.config": f'{_PLAIN} required user_plain="{PASSWORD}";',
        f"{listener}.scram-sha-256.sasl.jaas.config": f"{_SCRAM} required;",
        f"{listener}.scram-sha-512.sasl.jaas.config": f"{_SCRAM} required;",
        f"{listener}.oauthbearer.sasl.jaas.config": (
            f'{_OAUTH} required unsecuredLoginStringClaim_sub="broker";'
        ),
        # For so long a login by token holds at most: then the broker closes the connection.
        f"{listener}.oauthbearer.connections.max.reauth.ms": str(SESSION_MS),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": ";".join(f"User:{user}" for user in SUPER_USERS),
        "connection.failed.authentication.delay.ms": "0",
    }
