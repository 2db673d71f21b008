"""Kafka over TLS and with logins: each way works from end to end, each refusal says what to do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from heartbeat_stream.core.heartbeat import Heartbeat
from heartbeat_stream.local.stack import EmbeddedStack
from heartbeat_stream.settings import Settings
from heartbeat_stream.streaming.diagnosis import why_unreachable
from tests.support.brokers import SESSION_TIMEOUT_MS
from tests.support.certificates import Authority
from tests.support.oracle import Oracle, now_ms
from tests.support.program import lines_of, run_program
from tests.support.secure_kafka import PASSWORD, SecureKafka, unsecured_token
from tests.support.world import Cluster, World, running_workers

pytestmark = pytest.mark.kafka

#: So many connections are opened anew before that counts as survived.
LOGINS = 8
WRONG = "wrong-horse-8"
WAYS = ("TLS", "MUTUAL", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


@pytest.fixture
def world(secure_kafka: SecureKafka, stack: EmbeddedStack, tmp_path: Path) -> Iterator[World]:
    """The tests' own clients talk to the plain listener; what the settings say is a test's."""
    servers = secure_kafka.kafka.bootstrap_servers
    with running_workers(tmp_path) as workers:
        yield World(
            Cluster("kafka", servers, SESSION_TIMEOUT_MS), stack.postgres.url, tmp_path, workers
        )


def settings_for(way: str, kafka: SecureKafka, directory: Path) -> dict[str, str]:
    """The variables of a client that comes in this way and may do everything."""
    if way == "TLS":
        return kafka.tls()
    if way == "MUTUAL":
        return kafka.mutual()
    if way == "OAUTHBEARER":
        token = directory / "token"
        token.write_text(unsecured_token("token"))
        return kafka.token(token)
    user = {"PLAIN": "plain", "SCRAM-SHA-256": "scram-256", "SCRAM-SHA-512": "scram-512"}[way]
    return kafka.login(way, user)


@pytest.mark.parametrize("way", WAYS)
async def test_from_init_to_rows(
    way: str, secure_kafka: SecureKafka, world: World, tmp_path: Path
) -> None:
    world.environment |= settings_for(way, secure_kafka, tmp_path)
    done = run_program("init", world.environment, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    done = run_program("check", world.environment, tmp_path)
    assert (done.returncode, lines_of(done, "FAIL"), lines_of(done, "warn")) == (0, [], [])
    worker = world.start_worker(log_level="DEBUG")
    oracle = Oracle()
    await world.send([Heartbeat(7, f"{n}", now_ms(), "a", 1) for n in range(20)], oracle=oracle)
    await oracle.matches(world.table)
    await worker.stopped()
    assert PASSWORD not in worker.log_text()
    assert unsecured_token("token")[:30] not in worker.log_text()


async def test_logins_that_expire(secure_kafka: SecureKafka, world: World, tmp_path: Path) -> None:
    """The broker closes each connection when its login is over; the next has the newest token."""
    world.environment |= settings_for("OAUTHBEARER", secure_kafka, tmp_path)
    assert run_program("init", world.environment, tmp_path).returncode == 0
    worker = await world.start_worker(log_level="DEBUG").ready()
    oracle = Oracle()

    def logins() -> int:
        return worker.log_text().count("Authenticated via OAUTHBEARER")

    before = logins()
    while logins() < before + LOGINS:
        (tmp_path / "token.new").write_text(unsecured_token("token"))
        (tmp_path / "token.new").rename(tmp_path / "token")
        room = f"{len(oracle.newest)}"
        await world.send([Heartbeat(7, room, now_ms(), "a", 1)], oracle=oracle)
        await oracle.matches(world.table)
    await worker.stopped()


def refused(case: str, kafka: SecureKafka, directory: Path) -> tuple[dict[str, str], list[str]]:
    """The variables of a client that comes to nothing, and what it is to be told."""
    stranger = Authority(directory, "stranger")
    other = stranger.issue("mutual")
    as_other = {
        "HEARTBEAT_KAFKA_CERT_FILE": str(other.certificate),
        "HEARTBEAT_KAFKA_KEY_FILE": str(other.key),
    }
    token = directory / "token"
    token.write_text(unsecured_token("token", valid_s=-30))
    plaintext = {"HEARTBEAT_BROKERS": f"127.0.0.1:{kafka.tls_port}"}
    no_certificate = {**kafka.tls(), "HEARTBEAT_BROKERS": f"localhost:{kafka.mutual_port}"}
    cases = {
        "wrong password": (
            kafka.login("PLAIN", "plain", WRONG),
            ["refuses the login of plain by PLAIN", "HEARTBEAT_KAFKA_PASSWORD"],
        ),
        "wrong password, SCRAM-SHA-256": (
            kafka.login("SCRAM-SHA-256", "scram-256", WRONG),
            ["refuses the login of scram-256 by SCRAM-SHA-256"],
        ),
        "wrong password, SCRAM-SHA-512": (
            kafka.login("SCRAM-SHA-512", "scram-512", WRONG),
            ["refuses the login of scram-512 by SCRAM-SHA-512"],
        ),
        "expired token": (kafka.token(token), ["token", "HEARTBEAT_KAFKA_TOKEN_FILE"]),
        "untrusted certificate": (
            {**kafka.tls(), "HEARTBEAT_KAFKA_CA_FILE": str(stranger.file)},
            ["is not trusted", "HEARTBEAT_KAFKA_CA_FILE", str(stranger.file)],
        ),
        "wrong host name": (
            kafka.tls("127.0.0.1"),
            ["is another host's", "HEARTBEAT_BROKERS"],
        ),
        "no client certificate": (no_certificate, ["HEARTBEAT_KAFKA_CERT_FILE"]),
        "client certificate of another authority": (
            {**kafka.mutual(), **as_other},
            ["HEARTBEAT_KAFKA_CERT_FILE"],
        ),
        "plain text to TLS": (plaintext, ["HEARTBEAT_KAFKA_SECURITY_PROTOCOL"]),
        "TLS to plain text": (
            {**kafka.tls(), "HEARTBEAT_BROKERS": kafka.kafka.bootstrap_servers},
            ["no TLS with the broker", "HEARTBEAT_KAFKA_SECURITY_PROTOCOL"],
        ),
    }
    return cases[case]


@pytest.mark.parametrize(
    "case",
    [
        "wrong password",
        "wrong password, SCRAM-SHA-256",
        "wrong password, SCRAM-SHA-512",
        "expired token",
        "untrusted certificate",
        "wrong host name",
        "no client certificate",
        "client certificate of another authority",
        "plain text to TLS",
        "TLS to plain text",
    ],
)
async def test_a_refusal_says_what_to_do(
    case: str, secure_kafka: SecureKafka, tmp_path: Path
) -> None:
    environment, words = refused(case, secure_kafka, tmp_path)
    said = await why_unreachable(Settings.load(environment))
    assert [word for word in words if word not in said] == [], said
    assert "\n" not in said
    assert WRONG not in said


@pytest.mark.parametrize(
    "case", ["wrong password", "expired token", "untrusted certificate", "wrong host name"]
)
def test_commands_end_with_one_line(
    case: str, secure_kafka: SecureKafka, world: World, tmp_path: Path
) -> None:
    environment, words = refused(case, secure_kafka, tmp_path)
    world.environment |= environment
    init = run_program("init", world.environment, tmp_path)
    assert (init.returncode, init.stdout, init.stderr.count("\n")) == (1, "", 1)
    check = run_program("check", world.environment, tmp_path)
    assert (check.returncode, check.stderr) == (1, "")
    (failed,) = [line for line in lines_of(check, "FAIL") if "broker" in line]
    for said in (init.stderr, failed):
        assert [word for word in words if word not in said] == [], said
        assert WRONG not in said


async def test_a_worker_gives_up_and_says_why(
    secure_kafka: SecureKafka, world: World, tmp_path: Path
) -> None:
    environment, words = refused("wrong password", secure_kafka, tmp_path)
    world.environment |= environment
    worker = world.start_worker(startup_timeout_ms=2000, log_level="DEBUG")
    assert await worker.ended() == 1
    last = worker.log_text().splitlines()[-1]
    assert last.startswith("heartbeat-stream worker: ")
    assert [word for word in words if word not in last] == [], last
    assert WRONG not in worker.log_text()
