"""Settings: what is read from where, what is refused with which words, and what is never shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heartbeat_stream.config import reference
from heartbeat_stream.config.dotenv import read_dotenv
from heartbeat_stream.config.urls import worker_address
from heartbeat_stream.settings import SPECS, Settings, SettingsError, redact_url

ROOT = Path(__file__).parents[2]


def error_of(environ: dict[str, str], **kwargs: object) -> str:
    with pytest.raises(SettingsError) as caught:
        Settings.load(environ, **kwargs)  # type: ignore[arg-type]
    text = str(caught.value)
    assert "\n" not in text
    return text


def with_dotenv(tmp_path: Path, text: str) -> Path:
    path = tmp_path / ".env"
    path.write_text(text, encoding="utf-8")
    return path


# --- defaults and sources


def test_the_defaults_are_those_of_the_contract() -> None:
    settings = Settings.load({})
    assert settings.brokers == ("127.0.0.1:9092",)
    assert settings.database_url == "postgresql://postgres@127.0.0.1:5432/postgres"
    assert settings.app_id == "heartbeat-stream"
    assert settings.topic == "heartbeat"
    assert settings.source_keyed is False
    assert settings.jobs == ("heartbeats",)
    assert settings.partitions == 8
    assert settings.replication_factor == 1
    assert settings.table == "room_status_moment_g5"
    assert settings.buffer_window_ms == 5_000
    assert settings.buffer_size_max == 5_000
    assert settings.cooldown_ms == 30_000
    assert settings.min_ts_ms == 1_420_070_400_000
    assert settings.max_future_ms == 300_000
    assert settings.dead_letter_topic == "heartbeat.dead-letter"
    assert settings.data_dir == Path("./data")
    assert (settings.web_host, settings.web_port) == ("127.0.0.1", 6066)
    assert settings.web_url == "http://127.0.0.1:6066"
    assert settings.state_ttl_ms == 0


def test_without_load_the_defaults_are_the_same() -> None:
    assert Settings() == Settings.load({})


def test_a_flag_counts_before_the_environment_and_that_before_the_file(tmp_path: Path) -> None:
    path = with_dotenv(
        tmp_path, "HEARTBEAT_TOPIC=file\nHEARTBEAT_APP_ID=file\nHEARTBEAT_TABLE=file\n"
    )
    settings = Settings.load(
        {"HEARTBEAT_TOPIC": "environment", "HEARTBEAT_APP_ID": "environment"},
        path,
        {"HEARTBEAT_TOPIC": "flag"},
    )
    assert (settings.topic, settings.app_id, settings.table) == ("flag", "environment", "file")


def test_an_empty_variable_counts_as_not_given(tmp_path: Path) -> None:
    path = with_dotenv(tmp_path, "HEARTBEAT_TOPIC=file\n")
    assert Settings.load({"HEARTBEAT_TOPIC": ""}, path).topic == "file"


def test_an_empty_flag_is_wrong() -> None:
    assert "--topic (HEARTBEAT_TOPIC)" in error_of({}, overrides={"HEARTBEAT_TOPIC": ""})


def test_a_missing_file_is_no_error(tmp_path: Path) -> None:
    assert Settings.load({}, tmp_path / "none") == Settings()


# --- wrong values


@pytest.mark.parametrize(
    ("variable", "value", "wants"),
    [
        ("PARTITIONS", "0", "from 1 to 10000"),
        ("PARTITIONS", "8.0", "whole number"),
        ("PARTITIONS", "1_0", "whole number"),
        ("PARTITIONS", "８", "whole number"),
        ("PARTITIONS", "9" * 5000, "whole number"),
        ("COOLDOWN_MS", "30s", "milliseconds"),
        ("COOLDOWN_MS", "-1", "0 to"),
        ("STATE_TTL_MS", "-1", "0 or more"),
        ("WEB_PORT", "65536", "from 1 to 65535"),
        ("WEB_PORT", "0", "from 1 to 65535"),
        ("SOURCE_KEYED", "ja", "true or false"),
        ("BROKERS", "kafka", "host:port"),
        ("BROKERS", "kafka:9092,", "host:port"),
        ("BROKERS", "kafka:99999", "host:port"),
        ("BROKERS", "::1:9092", "in brackets"),
        ("BROKERS", "http://kafka:9092", "host:port"),
        ("TOPIC", "heart beat", "topic name"),
        ("TOPIC", "..", "topic name"),
        ("TOPIC", "x" * 250, "topic name"),
        ("APP_ID", "../x", "letters"),
        ("APP_ID", "..", "letters"),
        ("APP_ID", "x" * 223, "222"),
        ("TABLE", "a.b.c", "schema.table"),
        ("DATABASE_URL", "mysql://db/x", "postgresql://"),
        ("DATABASE_URL", "postgresql://db:port/x", "postgresql://"),
        ("JOBS", "heartbeat", "heartbeats"),
        ("JOBS", "heartbeats,heartbeats", "heartbeats"),
        ("WEB_URL", "worker-1:6066", "http://"),
        ("WEB_URL", "http://host:99999", "http://"),
        ("WEB_URL", "http://host:6066/workers/1", "http://host:port"),
        ("WEB_HOST", "my host", "host name"),
        ("WEB_OPEN", "health,table", "health, metrics; or none"),
        ("WEB_CORS_ORIGINS", "*", "https://pages.example.com"),
        ("WEB_CORS_ORIGINS", "https://a.example/path", "https://pages.example.com"),
        ("LOG_LEVEL", "LOUD", "INFO"),
        ("KAFKA_SECURITY_PROTOCOL", "TLS", "SASL_SSL"),
    ],
)
def test_a_wrong_value_is_named_with_what_would_be_right(
    variable: str, value: str, wants: str
) -> None:
    text = error_of({f"HEARTBEAT_{variable}": value})
    assert text.startswith(f'HEARTBEAT_{variable}: "{value[:60]}')
    assert wants in text


@pytest.mark.parametrize(
    ("variable", "value", "field", "meant"),
    [
        ("BROKERS", "a:1, b-2.example.:2,[::1]:3", "brokers", ("a:1", "b-2.example.:2", "[::1]:3")),
        ("SOURCE_KEYED", "TRUE", "source_keyed", True),
        ("KAFKA_SECURITY_PROTOCOL", "ssl", "kafka_security_protocol", "SSL"),
        ("LOG_LEVEL", "warning", "log_level", "WARNING"),
        ("WEB_URL", "https://w1.example:8443/", "web_url", "https://w1.example:8443"),
        ("WEB_HOST", "::1", "web_url", "http://[::1]:6066"),
        ("REPARTITION_RETENTION_MS", "-1", "repartition_retention_ms", -1),
        ("TABLE", 'hotel."Room Status"', "table", 'hotel."Room Status"'),
        ("APP_ID", "x" * 222, "app_id", "x" * 222),
        ("PARTITIONS", "1", "partitions", 1),
        ("PARTITIONS", "10000", "partitions", 10_000),
        ("WEB_PORT", "65535", "web_port", 65_535),
    ],
)
def test_unusual_values_that_are_right(
    variable: str, value: str, field: str, meant: object
) -> None:
    assert getattr(Settings.load({f"HEARTBEAT_{variable}": value}), field) == meant


def test_an_error_says_that_the_value_stands_in_the_file(tmp_path: Path) -> None:
    path = with_dotenv(tmp_path, "HEARTBEAT_PARTITIONS=many\n")
    assert error_of({}, dotenv_path=path).startswith(f'HEARTBEAT_PARTITIONS (in {path}): "many"')


def test_a_line_break_in_a_value_does_not_break_the_line() -> None:
    assert r"a\nb" in error_of({"HEARTBEAT_TOPIC": "a\nb"})


def test_a_kubernetes_service_link_is_recognised() -> None:
    text = error_of({"HEARTBEAT_WEB_PORT": "tcp://10.0.0.7:6066"})
    assert "enableServiceLinks: false" in text


@pytest.mark.parametrize(
    ("environ", "names"),
    [
        ({"DEAD_LETTER_TOPIC": "heartbeat"}, "HEARTBEAT_DEAD_LETTER_TOPIC"),
        ({"KAFKA_SECURITY_PROTOCOL": "SASL_SSL"}, "HEARTBEAT_KAFKA_USERNAME"),
        ({"KAFKA_SECURITY_PROTOCOL": "SASL_SSL", "KAFKA_USERNAME": "u"}, "HEARTBEAT_KAFKA_PASS"),
        ({"KAFKA_USERNAME": "u", "KAFKA_PASSWORD": "p"}, "HEARTBEAT_KAFKA_SECURITY_PROTOCOL"),
        ({"KAFKA_CA_FILE": "/ca.pem"}, "HEARTBEAT_KAFKA_SECURITY_PROTOCOL"),
        ({"KAFKA_SECURITY_PROTOCOL": "SSL", "KAFKA_CERT_FILE": "/c"}, "HEARTBEAT_KAFKA_KEY_FILE"),
        ({"COLLECT_CLAIM_MS": "2000"}, "HEARTBEAT_COLLECT_ACK_WAIT_MS"),
        ({"TRACKING_TOPIC": "heartbeat"}, "HEARTBEAT_TRACKING_TOPIC"),
    ],
)
def test_values_that_contradict_each_other(environ: dict[str, str], names: str) -> None:
    assert names in error_of({f"HEARTBEAT_{name}": value for name, value in environ.items()})


# --- misspelt variables


def test_a_misspelt_variable_is_answered_with_the_right_one(tmp_path: Path) -> None:
    path = with_dotenv(tmp_path, "HEARTBEAT_BROKER=a:1\n")
    warnings = Settings.load({"HEARTBEAT_COOLDOWN": "1", "HEARTBEAT_FOO": "1"}, path).warnings
    assert [line.split(":")[-1].strip() for line in warnings] == [
        "did you mean HEARTBEAT_COOLDOWN_MS?",
        "it has no effect",
        "did you mean HEARTBEAT_BROKERS?",
    ]
    assert str(path) in warnings[-1]


@pytest.mark.parametrize(
    "name",
    [
        "HEARTBEAT_TEST_BROKERS",
        "HEARTBEAT_STREAM_SERVICE_HOST",
        "HEARTBEAT_STREAM_SERVICE_PORT_HTTP",
        "HEARTBEAT_STREAM_PORT",
        "HEARTBEAT_STREAM_PORT_6066_TCP_ADDR",
        "HEARTBEATS",
        "PATH",
    ],
)
def test_other_peoples_variables_are_no_misspellings(name: str) -> None:
    assert Settings.load({name: "x"}).warnings == ()


# --- secrets

SASL = {"HEARTBEAT_KAFKA_SECURITY_PROTOCOL": "SASL_SSL", "HEARTBEAT_KAFKA_USERNAME": "reader"}


def test_no_password_is_shown() -> None:
    settings = Settings.load(
        {
            **SASL,
            "HEARTBEAT_KAFKA_PASSWORD": "hunter2",
            "HEARTBEAT_DATABASE_URL": "postgresql://app:s3cret@db/hotels",
        }
    )
    assert settings.kafka_password == "hunter2"
    shown = repr(settings) + str(settings) + f"{settings}"
    assert "hunter2" not in shown
    assert "s3cret" not in shown
    assert "postgresql://app:***@db/hotels" in shown


def test_a_wrong_secret_is_not_repeated() -> None:
    text = error_of({**SASL, "HEARTBEAT_KAFKA_PASSWORD": "hunter\t2"})
    assert text.startswith("HEARTBEAT_KAFKA_PASSWORD: its value is wrong")
    assert "hunter" not in text


def test_a_password_in_a_wrong_url_is_not_repeated() -> None:
    for url in ("mysql://app:s3cret@db/x", "app:s3cret@db", "host=db password=s3cret"):
        assert "s3cret" not in error_of({"HEARTBEAT_DATABASE_URL": url})


def test_passwords_come_from_files(tmp_path: Path) -> None:
    (tmp_path / "kafka").write_text("hunter2\n")
    (tmp_path / "database").write_text("p@ss/wörd\r\n")
    settings = Settings.load(
        {
            **SASL,
            "HEARTBEAT_KAFKA_PASSWORD_FILE": str(tmp_path / "kafka"),
            "HEARTBEAT_DATABASE_PASSWORD_FILE": str(tmp_path / "database"),
            "HEARTBEAT_DATABASE_URL": "postgresql://app@db1:5432,db2/hotels?sslmode=require",
        }
    )
    assert settings.kafka_password == "hunter2"
    assert (
        settings.database_url
        == "postgresql://app:p%40ss%2Fw%C3%B6rd@db1:5432,db2/hotels?sslmode=require"
    )


def test_the_token_of_the_web_view_comes_from_a_file_too(tmp_path: Path) -> None:
    path = tmp_path / "token"
    given = {"HEARTBEAT_WEB_TOKEN_FILE": str(path)}
    path.write_text("0123456789abcdef\n")
    settings = Settings.load(given)
    assert settings.web_token == "0123456789abcdef"
    assert "0123456789" not in repr(settings)
    assert "one of them" in error_of({**given, "HEARTBEAT_WEB_TOKEN": "0123456789abcdef"})
    for weak in ("too-short-to-use", "with a space in it", "mit-Umläuten-darin"):
        path.write_text(weak[:15] if weak.startswith("too") else weak)
        text = error_of(given)
        assert text.startswith("HEARTBEAT_WEB_TOKEN_FILE: its value is wrong: want 16 to 1024")
        assert weak[:15] not in text


@pytest.mark.parametrize("url", ["postgresql://db/x", "postgresql://a:b@db/x"])
def test_a_password_file_needs_a_url_with_a_user_and_no_password(tmp_path: Path, url: str) -> None:
    (tmp_path / "database").write_text("x\n")
    path = str(tmp_path / "database")
    text = error_of({"HEARTBEAT_DATABASE_PASSWORD_FILE": path, "HEARTBEAT_DATABASE_URL": url})
    assert text.startswith("HEARTBEAT_DATABASE_PASSWORD_FILE: want")


@pytest.mark.parametrize("content", [None, b"", b"two\nlines\n", b"\xff\xfe"])
def test_a_password_file_that_holds_none(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "password"
    if content is not None:
        path.write_bytes(content)
    text = error_of({"HEARTBEAT_DATABASE_PASSWORD_FILE": str(path)})
    assert text.startswith(f'HEARTBEAT_DATABASE_PASSWORD_FILE: "{path}"')
    assert "two" not in text


def test_a_password_given_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kafka").write_text("a")
    both = {
        "HEARTBEAT_KAFKA_PASSWORD": "b",
        "HEARTBEAT_KAFKA_PASSWORD_FILE": str(tmp_path / "kafka"),
    }
    assert "want one of them" in error_of({**SASL, **both})


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:p@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u:p@x:y@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u:p://@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u@h/d", "postgresql://u@h/d"),
        (
            "postgresql://h:5432/d?user=u&password=p&a=b",
            "postgresql://h:5432/d?user=u&password=***&a=b",
        ),
        ("host=h password='p q' user=u", "host=h password=*** user=u"),
        ("u:p@h", "u:***@h"),
        ("postgresql://h:5432/d", "postgresql://h:5432/d"),
        ("", ""),
    ],
)
def test_redacted_urls(url: str, shown: str) -> None:
    assert redact_url(url) == shown


@given(st.text(min_size=1).filter(lambda text: text.strip("*") != ""))
def test_a_redacted_url_never_holds_the_password(password: str) -> None:
    frame = "postgresql://user:{}@host/db"
    assert redact_url(frame.format(password)).count(password) <= frame.format("***").count(password)


@pytest.mark.parametrize(
    ("typed", "address"),
    [
        ("http://worker-0:6066", "http://worker-0:6066"),
        ("http://127.0.0.1:6066/ui/?hotel=7&room=101#rooms", "http://127.0.0.1:6066"),
        ("worker-0:6066", "http://worker-0:6066"),
        ("https://workers.example.com/", "https://workers.example.com"),
        ("[::1]:6066", "http://[::1]:6066"),
    ],
)
def test_the_address_of_a_worker(typed: str, address: str) -> None:
    assert worker_address(typed) == address


@pytest.mark.parametrize(
    "typed", ["", "http://", "http://[", "127.0.0.1:99999", "a:b", "ftp://a", "http://u:secret@a:1"]
)
def test_what_is_no_address_of_a_worker(typed: str) -> None:
    with pytest.raises(ValueError, match="want http://host:port") as caught:
        worker_address(typed)
    assert "secret" not in str(caught.value)


# --- the .env file


def test_what_a_dotenv_file_may_hold(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_bytes(
        "\ufeff# a comment\r\n"
        "A=1\r\n"
        "export B = two words  # and a comment\n"
        "C='$not # expanded \\n'\n"
        'D="a \\"quote\\"\\nand # more" # comment\n'
        "E=a#b\n"
        "F=\n"
        "G=  # nothing\n"
        "ready\n"
        "H=前台\n"
        "A=again\n".encode()
    )
    assert read_dotenv(path) == {
        "A": "again",
        "B": "two words",
        "C": "$not # expanded \\n",
        "D": 'a "quote"\nand # more',
        "E": "a#b",
        "F": "",
        "G": "",
        "H": "前台",
    }


@pytest.mark.parametrize("line", ["A B=1", "=1", "A='open", 'A="open', "A='x' y", "1A=2"])
def test_a_line_that_is_no_assignment_is_named_without_its_text(tmp_path: Path, line: str) -> None:
    path = with_dotenv(tmp_path, f"OK=1\n{line}\n")
    assert error_of({}, dotenv_path=path) == f"{path}, line 2: want NAME=value, quotes closed"


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_bytes(b"A=\xff\n")
    assert "is not UTF-8" in error_of({}, dotenv_path=path)


def test_a_directory_is_no_settings_file(tmp_path: Path) -> None:
    assert "cannot be read" in error_of({}, dotenv_path=tmp_path)


# --- the web view's address


def test_whether_the_port_was_set() -> None:
    assert not Settings.load({}).web_port_is_set
    assert Settings.load({"HEARTBEAT_WEB_PORT": "6066"}).web_port_is_set
    assert Settings.load({}, overrides={"HEARTBEAT_WEB_PORT": "6066"}).web_port_is_set


def test_a_url_made_from_the_port_follows_it() -> None:
    assert Settings.load({}).at_web_port(6070).web_url == "http://127.0.0.1:6070"
    chosen = Settings.load({"HEARTBEAT_WEB_URL": "http://pod-1:6066"})
    assert chosen.at_web_port(6070).web_url == "http://pod-1:6066"


def test_every_interface_is_reached_by_the_hosts_name() -> None:
    settings = Settings.load({"HEARTBEAT_WEB_HOST": "0.0.0.0"})
    assert "0.0.0.0" not in settings.web_url
    assert settings.web_url.endswith(":6066")


# --- what is made from the table


def test_the_references_in_the_repository_are_up_to_date() -> None:
    """`make reference` mends it."""
    assert (ROOT / ".env.example").read_text(encoding="utf-8") == reference.env_example()
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert page == reference.configuration_page()


def test_the_example_file_holds_the_defaults(tmp_path: Path) -> None:
    text = "\n".join(
        line.removeprefix("#") for line in reference.env_example().splitlines() if line[:2] != "# "
    )
    path = with_dotenv(tmp_path, text)
    assert set(read_dotenv(path)) == {spec.variable for spec in SPECS}
    loaded = Settings.load({}, path)
    assert {spec.field: getattr(loaded, spec.field) for spec in SPECS} == {
        spec.field: getattr(Settings(), spec.field) for spec in SPECS
    }


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.field)
def test_every_setting_is_described(spec: object) -> None:
    assert spec.meaning.endswith(".")  # type: ignore[attr-defined]
    assert "`" not in spec.default  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("HEARTBEAT_TOPIC", "a-heartbeats-repartition"),
        ("HEARTBEAT_TOPIC", "a-latest-changelog"),
        ("HEARTBEAT_DEAD_LETTER_TOPIC", "a-heartbeats-repartition"),
        ("HEARTBEAT_DEAD_LETTER_TOPIC", "heartbeat"),
        ("HEARTBEAT_MARKET_UNIQUE_TOPIC", "market"),
        ("HEARTBEAT_DEAD_LETTER_TOPIC", "market"),
    ],
)
def test_what_a_worker_writes_does_not_come_back_to_it(variable: str, value: str) -> None:
    environ = {"HEARTBEAT_APP_ID": "a", "HEARTBEAT_JOBS": "heartbeats,market", variable: value}
    assert f'{variable}: "{value}" is a ' in error_of(environ)


def test_the_home_of_nobody() -> None:
    assert "HEARTBEAT_DATA_DIR" in error_of({"HEARTBEAT_DATA_DIR": "~nosuchuser/x"})
