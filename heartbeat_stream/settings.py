"""What can be set. The class `Settings` is the one table of it.

The command line's flags, the output of `--help`, `.env.example` and the configuration reference are
made from this table, so that a setting is written down once: here.

Where a value is given several times, the flag counts before the environment, and that before the
`.env` file. An empty variable counts as not given, as Compose files have it (`NAME: ${NAME:-}`).
"""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from heartbeat_stream.config import kinds
from heartbeat_stream.config.agreement import OAUTHBEARER, check_agreement
from heartbeat_stream.config.sources import Given, SettingsError, collect, read_secret_file
from heartbeat_stream.config.spec import PREFIX, Section, Spec, specs_of
from heartbeat_stream.config.urls import redact_url, with_password

__all__ = ["BY_FIELD", "BY_VARIABLE", "SPECS", "Settings", "SettingsError", "Spec", "redact_url"]

KNOWN_JOBS = ("heartbeats", "market", "messages", "tracking")

# The longest that is joined to the app id to name a topic.
_LONGEST_TOPIC_SUFFIX = len("-messages-printed-changelog")

_kafka = Section("Kafka")
_security = Section("Kafka security")
_postgres = Section("PostgreSQL")
_job = Section("Job")
_market = Section("Market messages")
_messages = Section("Message filter")
_tracking = Section("Tracking")
_collector = Section("Collector")
_worker = Section("Worker")
_web = Section("Web view")
_log = Section("Log")


@dataclass(frozen=True, kw_only=True, repr=False)
class Settings:
    """The values that hold for this process.

    Made by `load`. Tests may also call `Settings(app_id="x", ...)`: values given to the constructor
    are taken as they are.
    """

    brokers: tuple[str, ...] = _kafka(
        "127.0.0.1:9092", kinds.brokers(), "Bootstrap servers, comma-separated."
    )
    app_id: str = _kafka(
        "heartbeat-stream",
        kinds.app_id(_LONGEST_TOPIC_SUFFIX),
        "Faust app id: the consumer group, and the prefix of the internal topics.",
    )
    topic: str = _kafka("heartbeat", kinds.topic(), "Source topic.")
    source_keyed: bool = _kafka(
        "false",
        kinds.boolean(),
        "true: every record of the source topic already carries the key hotel:room, placed by "
        "Kafka's default (murmur2) partitioner, so that no repartition topic is needed. A record "
        "whose key is not the canonical one is then a dead letter.",
    )
    dead_letter_topic: str = _kafka("heartbeat.dead-letter", kinds.topic(), "Where bad input goes.")
    partitions: int = _kafka(
        "8",
        kinds.integer(1, 10_000),
        "Partitions of the topics that init and the worker create. A topic that exists keeps its "
        "own.",
    )
    replication_factor: int = _kafka(
        "1",
        kinds.integer(1, 100),
        "Replicas of the topics that init and the worker create. 3 on a production cluster.",
    )
    session_timeout_ms: int = _kafka(
        "10000",
        kinds.milliseconds(1_000, 1_800_000),
        "A worker that the broker has not heard of for so long loses its partitions to the others.",
    )
    group_instance_id: str | None = _kafka(
        "",
        kinds.optional(kinds.instance_id()),
        "This worker's fixed name in the consumer group, different for each worker. One that is "
        "back under its name within the session timeout has its partitions again, and the others "
        "notice nothing; in return, nobody takes over from a stopped one before that timeout.",
        shown_default="none: a member that leaves when it stops",
        advanced=True,
    )
    repartition_retention_ms: int = _kafka(
        "604800000",
        kinds.milliseconds(-1),
        "How long the repartition topic keeps records at least. Once forwarded they are read from "
        "there, so it bounds the outage that is survived. A source topic that keeps records for "
        "longer raises it. -1: for ever.",
        shown_default="604800000 (7 days)",
        advanced=True,
    )
    dead_letter_retention_ms: int = _kafka(
        "-1",
        kinds.milliseconds(-1),
        "How long the dead-letter topic keeps records.",
        shown_default="-1 (for ever)",
        advanced=True,
    )
    changelog_compaction_lag_ms: int = _kafka(
        "86400000",
        kinds.milliseconds(0),
        "For so long a changelog keeps every version of a row, not only the last. It must outlast "
        "any freeze of a worker, whose late writes recovery then still recognises as old.",
        shown_default="86400000 (1 day)",
        advanced=True,
    )

    kafka_security_protocol: str = _security(
        "PLAINTEXT",
        kinds.choice("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        "How to talk to the brokers: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.",
        advanced=True,
    )
    kafka_sasl_mechanism: str = _security(
        "PLAIN",
        kinds.choice("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTHBEARER),
        "How to log in, with a SASL protocol: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512 with a name "
        "and a password, OAUTHBEARER with a token.",
        advanced=True,
    )
    kafka_username: str | None = _security(
        "", kinds.optional(kinds.string()), "The name to log in with.", advanced=True
    )
    kafka_password: str | None = _security(
        "",
        kinds.optional(kinds.string()),
        "The password to log in with.",
        secret=True,
        advanced=True,
    )
    kafka_password_file: Path | None = _security(
        "",
        kinds.optional(kinds.path()),
        "A file that holds the password instead (a mounted secret, say).",
        advanced=True,
    )
    kafka_token_file: Path | None = _security(
        "",
        kinds.optional(kinds.path()),
        "A file that holds the token for OAUTHBEARER. It is read anew for each connection, so that "
        "whoever writes it can replace the token before it expires.",
        advanced=True,
    )
    kafka_ca_file: Path | None = _security(
        "",
        kinds.optional(kinds.path()),
        "Certificates (PEM) of the authorities that sign the brokers' certificates.",
        shown_default="the system's",
        advanced=True,
    )
    kafka_cert_file: Path | None = _security(
        "",
        kinds.optional(kinds.path()),
        "Certificate (PEM) that shows the brokers who this client is.",
        advanced=True,
    )
    kafka_key_file: Path | None = _security(
        "",
        kinds.optional(kinds.path()),
        "Private key (PEM, not encrypted) of that certificate.",
        advanced=True,
    )

    database_url: str = _postgres(
        "postgresql://postgres@127.0.0.1:5432/postgres",
        kinds.database_url(),
        "PostgreSQL. Options of the connection may follow, as in ?sslmode=verify-full.",
    )
    database_password_file: Path | None = _postgres(
        "",
        kinds.optional(kinds.path()),
        "A file that holds the password, which is then left out of the URL.",
        advanced=True,
    )
    table: str = _postgres(
        "room_status_moment_g5", kinds.table(), "Target table; schema.table allowed."
    )
    database_pool_size: int = _postgres(
        "4", kinds.integer(1, 100), "Connections of a worker, and so the batches in flight."
    )
    database_pooler: bool = _postgres(
        "false",
        kinds.boolean(),
        "true behind a pooler in transaction mode (PgBouncer, say): nothing then outlives a "
        "transaction.",
    )
    database_connect_timeout_ms: int = _postgres(
        "5000",
        kinds.milliseconds(100, 600_000),
        "A connection that takes longer has failed and is tried again.",
        advanced=True,
    )
    database_statement_timeout_ms: int = _postgres(
        "10000",
        kinds.milliseconds(100, 600_000),
        "A statement that takes longer has failed and is tried again.",
        advanced=True,
    )

    jobs: tuple[str, ...] = _job(
        "heartbeats", kinds.names(*KNOWN_JOBS), "The jobs that a worker runs, comma-separated."
    )
    buffer_window_ms: int = _job(
        "5000",
        kinds.milliseconds(0, 86_400_000),
        "Layer 1: of a room's heartbeats within this window only the newest is written.",
    )
    buffer_size_max: int = _job(
        "5000",
        kinds.integer(1, 1_000_000),
        "Layer 1: when so many rooms wait only for their window, they are written at once. Also "
        "the largest batch.",
    )
    cooldown_ms: int = _job(
        "30000",
        kinds.milliseconds(0, 604_800_000),
        "Layer 2: between two writes of a room at least so long passes.",
    )
    min_ts_ms: int = _job(
        "1420070400000",
        kinds.milliseconds(0),
        "A heartbeat with an older ts_ms is a dead letter (a value in seconds falls below it too).",
        shown_default="1420070400000 (2015-01-01)",
    )
    max_future_ms: int = _job(
        "300000",
        kinds.milliseconds(0),
        "A heartbeat whose ts_ms is further than this ahead of the worker's clock is a dead "
        "letter.",
    )
    state_ttl_ms: int = _job(
        "0",
        kinds.milliseconds(0),
        "A room silent for longer leaves the tables, unless something of it is still to be "
        "written. A heartbeat older than what was forgotten is then no longer recognised as old.",
        shown_default="0 (never)",
    )

    job_config: Path | None = _job(
        "",
        kinds.optional(kinds.path()),
        "A TOML file that says, for the jobs that judge messages, by which layers, fields, units "
        "and lifetimes two of them are the same: see docs/duplicates.md.",
        shown_default="none: the built-in rules",
    )

    transactions: bool = _job(
        "false",
        kinds.boolean(),
        "true: what the jobs market and messages put out to topics becomes visible together with "
        "what they remember and have read, at each checkpoint: exactly once, for readers with "
        "isolation.level=read_committed. It comes out later by as much as two checkpoints, so set "
        "HEARTBEAT_CHECKPOINT_MS to some hundreds.",
    )

    market_topic: str = _market("market", kinds.topic(), "Source topic of the job market.")
    market_keyed: bool = _market(
        "false",
        kinds.boolean(),
        "true: the records of an exchange, channel and symbol stand in one partition of the source "
        "topic already, in order, so that no repartition topic is needed.",
    )
    market_unique_topic: str = _market(
        "market.unique", kinds.topic(), "Where messages go that were not seen before, unchanged."
    )
    market_duplicates_topic: str | None = _market(
        "",
        kinds.optional(kinds.topic()),
        "Where duplicates go, with headers that name the layer and the first occurrence.",
        shown_default="none: they are dropped",
    )
    market_continuity_topic: str = _market(
        "market.continuity",
        kinds.topic(),
        "Where gaps, repeats and resets of the sequences of ids are told.",
    )
    market_table: str | None = _market(
        "",
        kinds.optional(kinds.table()),
        "Table that unique messages are appended to as well, once for each source offset.",
        shown_default="none: they stay in Kafka",
    )

    messages_topic: str = _messages("messages", kinds.topic(), "Source topic of the job messages.")
    messages_window_ms: int = _messages(
        "10000",
        kinds.milliseconds(1, 604_800_000),
        "A text is not printed again before so much time has passed since it was printed last, by "
        "the timestamps of the records.",
    )
    messages_sink: str = _messages(
        "stdout", kinds.choice("stdout", "file", "topic", "table"), "Where texts are printed."
    )
    messages_output_topic: str = _messages(
        "messages.printed", kinds.topic(), "With HEARTBEAT_MESSAGES_SINK=topic: to which."
    )
    messages_table: str = _messages(
        "message",
        kinds.table(),
        "With HEARTBEAT_MESSAGES_SINK=table: to which of PostgreSQL, once for each source offset.",
    )
    messages_file: Path = _messages(
        "./messages.log",
        kinds.path(),
        "With HEARTBEAT_MESSAGES_SINK=file: into which, different for each worker.",
    )
    messages_file_bytes: int = _messages(
        "67108864",
        kinds.integer(1, unit="bytes"),
        "When the file has reached this size, it gets the end .1, the one before .2, and so on.",
        shown_default="67108864 (64 MiB)",
        advanced=True,
    )
    messages_file_count: int = _messages(
        "5",
        kinds.integer(1, 1000),
        "So many such files are kept, the current one included.",
        advanced=True,
    )
    messages_count_suppressed: bool = _messages(
        "false",
        kinds.boolean(),
        "true: when the window of a text ends that was suppressed, a line says how often.",
    )

    tracking_topic: str = _tracking(
        "tracking", kinds.topic(), "Topic of the tracking events: the collector writes it."
    )
    tracking_keyed: bool = _tracking(
        "false",
        kinds.boolean(),
        "true: the events of a project and distinct id stand in one partition of the topic "
        "already, so that no repartition topic is needed.",
    )
    tracking_table: str = _tracking(
        "event",
        kinds.table(),
        "Table that the job tracking stores events in, partitioned by the day on which they were "
        "received; schema.table allowed, 53 bytes for the table at most.",
    )
    tracking_policy: str = _tracking(
        "mark",
        kinds.choice("mark", "drop"),
        "What becomes of duplicates: mark stores them with a remark that begins with du-, drop "
        "stores the first of each alone.",
    )
    tracking_place: str = _tracking(
        "kafka",
        kinds.choice("kafka", "door"),
        "Where duplicates are recognised: kafka is the job behind Kafka, door is the collector.",
    )
    tracking_signup: bool = _tracking(
        "false",
        kinds.boolean(),
        "true: events of the type track_signup are judged too, not those of the type track alone.",
    )
    tracking_window_ms: int = _tracking(
        "3600000",
        kinds.milliseconds(1_000, 604_800_000),
        "For so long an event is remembered since a copy of it came last.",
        shown_default="3600000 (1 hour)",
    )

    collect_host: str = _collector(
        "127.0.0.1", kinds.host(), "Address that the collector listens on."
    )
    collect_port: int = _collector("8106", kinds.integer(1, 65535), "Its port.")
    collect_store: str = _collector(
        "memory",
        kinds.choice("memory", "redis", "postgres"),
        "With HEARTBEAT_TRACKING_PLACE=door: what remembers the events that were seen. memory is "
        "for a single collector; redis and postgres are shared by any number.",
    )
    collect_redis_url: str = _collector(
        "redis://127.0.0.1:6379/0",
        kinds.redis_url(),
        "Where Redis is, with HEARTBEAT_COLLECT_STORE=redis.",
    )
    collect_store_table: str = _collector(
        "collect_seen",
        kinds.table(),
        "Table of the events seen, with HEARTBEAT_COLLECT_STORE=postgres; schema.table allowed. "
        "It is created where it is missing, in the database of HEARTBEAT_DATABASE_URL.",
    )
    collect_store_wait_ms: int = _collector(
        "250",
        kinds.milliseconds(1, 60_000),
        "A store that takes longer has failed: the events of that report pass unjudged.",
    )
    collect_claim_ms: int = _collector(
        "10000",
        kinds.milliseconds(1_000, 600_000),
        "For so long a collector may keep an event to itself until Kafka has it; longer than "
        "HEARTBEAT_COLLECT_ACK_WAIT_MS.",
        advanced=True,
    )
    collect_seen_max: int = _collector(
        "5000000",
        kinds.integer(1_000),
        "The most events that memory or PostgreSQL remember; those seen longest ago go first. "
        "Redis has maxmemory for it.",
    )
    collect_seen_mb: int = _collector(
        "1024",
        kinds.integer(1, 1_048_576, "MiB"),
        "The same in memory, or on the disk of PostgreSQL; whichever is reached first counts.",
    )
    collect_ack_wait_ms: int = _collector(
        "2000",
        kinds.milliseconds(10, 60_000),
        "So long a client waits for Kafka's acknowledgement. Then its report goes to the spool.",
    )
    collect_spool_dir: Path = _collector(
        "./spool",
        kinds.path(),
        "Where reports wait that Kafka has not taken. Collectors on one host may share it: each "
        "takes a directory of its own in it, and a restarted one finds its own again.",
    )
    collect_spool_mb: int = _collector(
        "1024",
        kinds.integer(1, 1_048_576, "MiB"),
        "The most that the spool holds. Where that is full too, the answer is 503.",
    )
    collect_body_max_bytes: int = _collector(
        "8388608",
        kinds.integer(1_024, 268_435_456, "bytes"),
        "The largest body of a request; a larger one is answered with 413.",
        shown_default="8388608 (8 MiB)",
        advanced=True,
    )
    collect_unpacked_max_bytes: int = _collector(
        "33554432",
        kinds.integer(1_024, 1_073_741_824, "bytes"),
        "The most that a report may unpack to; a larger one is a dead letter.",
        shown_default="33554432 (32 MiB)",
        advanced=True,
    )
    collect_events_max: int = _collector(
        "100000",
        kinds.integer(1, 10_000_000),
        "The most events in one report; one with more is a dead letter.",
        advanced=True,
    )
    collect_request_timeout_ms: int = _collector(
        "15000",
        kinds.milliseconds(100, 600_000),
        "A client that has not sent its whole request after so long is cut off.",
        advanced=True,
    )
    collect_connections_max: int = _collector(
        "10000",
        kinds.integer(1, 1_000_000),
        "The most connections at once; one more is closed at once.",
        advanced=True,
    )
    collect_memory_mb: int = _collector(
        "128",
        kinds.integer(1, 1_048_576, "MiB"),
        "The most that the reports under way may take, unpacked; further ones go to the spool.",
        advanced=True,
    )

    data_dir: Path = _worker(
        "./data",
        kinds.path(),
        "RocksDB and Faust's files. Workers on one host may share it: each takes a directory of "
        "its own in it, and a restarted one finds its own again.",
    )
    checkpoint_ms: int = _worker(
        "5000",
        kinds.milliseconds(100, 600_000),
        "How often state is made durable and offsets are committed.",
    )
    drain_timeout_ms: int = _worker(
        "10000",
        kinds.milliseconds(100, 3_600_000),
        "When a partition is given up, or at SIGTERM: the longest that ending the writes in "
        "flight and a checkpoint may take.",
    )
    startup_timeout_ms: int = _worker(
        "60000",
        kinds.milliseconds(0, 86_400_000),
        "How long a starting worker waits for the brokers and the topics before it gives up with "
        "exit code 1.",
    )
    cache_rooms: int = _worker(
        "500000",
        kinds.integer(0),
        "Rooms kept in memory besides those with something to write; others are read from RocksDB "
        "when needed.",
        advanced=True,
    )
    rocksdb_cache_mb: int = _worker(
        "64",
        kinds.integer(1, 1_048_576, "MiB"),
        "What RocksDB keeps in memory, for all partitions and tables together: its write buffers, "
        "and what they leave of it as a block cache.",
        advanced=True,
    )

    web_host: str = _web("127.0.0.1", kinds.host(), "Address that the web view listens on.")
    web_port: int = _web(
        "6066",
        kinds.integer(1, 65535),
        "Its port. Where it was not set and 6066 is taken, the next free one, said in the log.",
    )
    web_url: str = _web(
        "",
        kinds.web_url(),
        "The address under which other workers and people reach this worker's web view: different "
        "for each worker.",
        shown_default="made from host and port",
    )
    web_token: str | None = _web(
        "",
        kinds.optional(kinds.token()),
        "What is to be shown to see the page and the state views: the same for all workers. Needed "
        "where HEARTBEAT_WEB_HOST is not a loopback address.",
        secret=True,
    )
    web_token_file: Path | None = _web(
        "",
        kinds.optional(kinds.path()),
        "A file that holds the token instead (a mounted secret, say).",
        advanced=True,
    )
    web_open: tuple[str, ...] = _web(
        "health,metrics",
        kinds.names_or_none("health", "metrics"),
        "What is shown without the token all the same, to probes and to Prometheus.",
        advanced=True,
    )
    web_cors_origins: tuple[str, ...] | None = _web(
        "",
        kinds.optional(kinds.origins()),
        "Pages of these origins may read the web view with scripts of theirs, given the token.",
        shown_default="none: no page of another origin",
        advanced=True,
    )

    log_format: str = _log(
        "human", kinds.choice("human", "json"), "How log lines are written: human or json."
    )
    log_level: str = _log(
        "INFO",
        kinds.choice("DEBUG", "INFO", "WARNING", "ERROR"),
        "From which level: DEBUG, INFO, WARNING or ERROR.",
    )

    # No settings themselves: the variables that were given, and what is odd about them.
    given: frozenset[str] = frozenset()
    warnings: tuple[str, ...] = ()

    @classmethod
    def load(
        cls,
        environ: Mapping[str, str],
        dotenv_path: Path | None = None,
        overrides: Mapping[str, str] | None = None,
    ) -> Settings:
        """Read and check everything. `overrides` (the flags) are keyed by variable.

        A `dotenv_path` that does not exist is passed over. Raises SettingsError, one line, for the
        first thing that is wrong. What is odd but harmless is in `warnings`, a line each.
        """
        found, warnings = collect(
            environ, dotenv_path, overrides or {}, known=BY_VARIABLE.keys(), prefix=PREFIX
        )
        values = {
            spec.field: spec.parse(found[spec.variable]) for spec in SPECS if spec.variable in found
        }
        settings = cls(**values, given=frozenset(found), warnings=tuple(warnings))
        settings = _with_secrets(settings)
        check_agreement(settings)
        return settings

    def __post_init__(self) -> None:
        if not self.web_url:
            object.__setattr__(self, "web_url", _made_url(self.web_host, self.web_port))

    @property
    def web_port_is_set(self) -> bool:
        """Whether somebody chose the port, so that another one is no substitute."""
        return BY_FIELD["web_port"].variable in self.given

    def at_web_port(self, port: int) -> Settings:
        """The same with the port that was really taken; a URL made from the port follows it."""
        made = self.web_url == _made_url(self.web_host, self.web_port)
        return dataclasses.replace(self, web_port=port, web_url="" if made else self.web_url)

    def shown(self, field: str) -> str:
        """A value for people, as it would be written in the environment; never a secret."""
        value = getattr(self, field)
        if value is None:
            return ""
        if BY_FIELD[field].secret:
            return "***"
        if isinstance(value, tuple):
            return ",".join(value)
        if isinstance(value, bool):
            return str(value).lower()
        return redact_url(str(value)) if field.endswith("_url") else str(value)

    def __repr__(self) -> str:
        return f"Settings({', '.join(f'{s.field}={self.shown(s.field)}' for s in SPECS)})"


def _with_secrets(settings: Settings) -> Settings:
    """Put passwords that stand in files where they are used."""
    if settings.kafka_password_file is not None:
        if settings.kafka_password is not None:
            raise SettingsError(
                "HEARTBEAT_KAFKA_PASSWORD and HEARTBEAT_KAFKA_PASSWORD_FILE: want one of them"
            )
        password = read_secret_file("HEARTBEAT_KAFKA_PASSWORD_FILE", settings.kafka_password_file)
        settings = dataclasses.replace(settings, kafka_password=password)
    if settings.web_token_file is not None:
        if settings.web_token is not None:
            raise SettingsError(
                "HEARTBEAT_WEB_TOKEN and HEARTBEAT_WEB_TOKEN_FILE: want one of them"
            )
        variable = "HEARTBEAT_WEB_TOKEN_FILE"
        text = read_secret_file(variable, settings.web_token_file)
        token = BY_FIELD["web_token"].parse(Given(variable, text))
        settings = dataclasses.replace(settings, web_token=token)
    if settings.database_password_file is not None:
        variable = "HEARTBEAT_DATABASE_PASSWORD_FILE"
        password = read_secret_file(variable, settings.database_password_file)
        url = with_password(settings.database_url, password)
        if url is None:
            raise SettingsError(
                f"{variable}: want a HEARTBEAT_DATABASE_URL that names a user and no password"
            )
        settings = dataclasses.replace(settings, database_url=url)
    return settings


def _made_url(host: str, port: int) -> str:
    """Where the web view is reached; for "every interface" by this machine's name."""
    if host in {"0.0.0.0", "::"}:
        host = socket.gethostname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


SPECS: tuple[Spec, ...] = specs_of(Settings)
BY_VARIABLE: Mapping[str, Spec] = {spec.variable: spec for spec in SPECS}
BY_FIELD: Mapping[str, Spec] = {spec.field: spec for spec in SPECS}
