"""Every metric of a worker: its name, its type, what it means, and what to do when it moves.

The names are public: alerts, dashboards and the demo are built on them. A metric is added here and
read in ``reading.py``; docs/metrics.md is made from this list.
"""

from typing import Literal, NamedTuple

__all__ = ["METRICS", "SECTIONS", "MetricSpec", "Section"]

Kind = Literal["counter", "gauge", "histogram", "info"]


class MetricSpec(NamedTuple):
    """One metric. Counters end in ``_total``; units are seconds and bytes."""

    name: str
    kind: Kind
    meaning: str  #: also its HELP text
    action: str  #: what an operator is to do, or to think of, when it moves
    labels: tuple[str, ...] = ()


class Section(NamedTuple):
    """Metrics that belong together."""

    title: str
    about: str
    metrics: tuple[MetricSpec, ...]


SECTIONS = (
    Section(
        "What comes in",
        "Every record of the source is counted once more, by what became of it: a dead letter, a "
        "tombstone, combined, stale or merged. What is missing from that sum is on its way through "
        "the repartition topic.",
        (
            MetricSpec(
                "heartbeat_records_total",
                "counter",
                "Records read from the source topic.",
                "Its rate is the fleet's. At 0 with ready workers nobody sends, or to another "
                "topic.",
            ),
            MetricSpec(
                "heartbeat_dead_letters_total",
                "counter",
                "Dead letters, by reason: records that are no heartbeats, and rows that the "
                "database refuses (row-refused).",
                "Look at some in the dead-letter topic: their headers say what is wrong and where "
                "it came from. Mend the sender, or the table.",
                ("reason",),
            ),
            MetricSpec(
                "heartbeat_tombstones_total",
                "counter",
                "Records with a null value, skipped.",
                "Heartbeats have values: somebody deletes keys of a compacted topic, or sends to "
                "the wrong one.",
            ),
            MetricSpec(
                "heartbeat_combined_total",
                "counter",
                "Heartbeats that a newer one of the same batch replaced, before they were "
                "forwarded.",
                "Part of what is saved. It grows when batches do: after an outage, say.",
            ),
            MetricSpec(
                "heartbeat_forwarded_total",
                "counter",
                "Heartbeats forwarded to the repartition topic; none with HEARTBEAT_SOURCE_KEYED.",
                "Nothing. What it gains on merged and stale together is the load of that topic.",
            ),
            MetricSpec(
                "heartbeat_merged_total",
                "counter",
                "Heartbeats that became the newest of their room.",
                "What it exceeds rows written by is what the two layers save.",
            ),
            MetricSpec(
                "heartbeat_stale_total",
                "counter",
                "Heartbeats that were not newer than the newest of their room.",
                "A replay or a backlog that is read again makes it grow. Otherwise: a sender "
                "repeats itself, or devices' clocks go back.",
            ),
            MetricSpec(
                "heartbeat_lag_records",
                "gauge",
                "Records of a partition that have not been worked on, as of the last fetch.",
                "If it grows while records are read, the worker is slower than the fleet: add "
                "workers, up to one for each partition.",
                ("topic", "partition"),
            ),
            MetricSpec(
                "heartbeat_lag_seconds",
                "gauge",
                "Age of the oldest record of a partition that has not been worked on.",
                "As above. It says how old the newest known heartbeat of a room may be.",
                ("topic", "partition"),
            ),
            MetricSpec(
                "heartbeat_fetch_age_seconds",
                "gauge",
                "Time since brokers last answered a fetch of this worker; missing where it owns "
                "nothing.",
                "Below a second. Otherwise brokers are away, or do not take what is forwarded, "
                "for which reading waits.",
            ),
        ),
    ),
    Section(
        "Rooms",
        "A room with something to write is pending: cooling, then waiting for its window, then "
        "due, then in flight.",
        (
            MetricSpec(
                "heartbeat_rooms_pending",
                "gauge",
                "Rooms with something to write.",
                "In a steady state it follows the number of rooms that are alive. It grows to all "
                "of them while the database is away.",
            ),
            MetricSpec(
                "heartbeat_rooms_cooling",
                "gauge",
                "Pending rooms whose cooldown is not over.",
                "Most of the pending ones, in a steady state.",
            ),
            MetricSpec(
                "heartbeat_rooms_waiting",
                "gauge",
                "Pending rooms that wait for nothing but their window.",
                "At HEARTBEAT_BUFFER_SIZE_MAX all of them become due at once.",
            ),
            MetricSpec(
                "heartbeat_rooms_due",
                "gauge",
                "Rooms to be written now.",
                "More than a few batches for a minute: the database does not keep up.",
            ),
            MetricSpec(
                "heartbeat_rooms_in_flight",
                "gauge",
                "Rooms of which a write is under way.",
                "At HEARTBEAT_BUFFER_SIZE_MAX times HEARTBEAT_DATABASE_POOL_SIZE it is full.",
            ),
            MetricSpec(
                "heartbeat_rooms_in_memory",
                "gauge",
                "Rooms held in memory, about half a kilobyte each.",
                "Bounded by HEARTBEAT_CACHE_ROOMS and the pending ones.",
            ),
            MetricSpec(
                "heartbeat_rooms_expired_total",
                "counter",
                "Rooms that were silent for HEARTBEAT_STATE_TTL_MS and left the tables.",
                "Nothing, unless many go at once: a hotel is closed, or cut off.",
            ),
        ),
    ),
    Section(
        "The database",
        "",
        (
            MetricSpec(
                "heartbeat_rows_written_total",
                "counter",
                "Rows that the database has acknowledged.",
                "At 0 with rooms due: see write retries.",
            ),
            MetricSpec(
                "heartbeat_rows_turned_away_total",
                "counter",
                "Those of them that changed nothing, since the table had the same or newer.",
                "Some come after a crash. Many: another worker of another group, or a replay, "
                "writes the same table.",
            ),
            MetricSpec(
                "heartbeat_rows_refused_total",
                "counter",
                "Rows that the database refuses for what they hold; each is a dead letter.",
                "Read the dead letter's detail: a constraint, a type or a trigger of the table.",
            ),
            MetricSpec(
                "heartbeat_write_retries_total",
                "counter",
                "Batches that did not land and are tried again, by kind of error.",
                "The kind says whose it is: connection, starting and timeout pass by themselves; "
                "permission, undefined-table and authentication need somebody.",
                ("kind",),
            ),
            MetricSpec(
                "heartbeat_database_available",
                "gauge",
                "1: the database took what it was given last. 0: it did not.",
                "At 0 nothing is lost: rooms stay pending. See write retries for the reason.",
            ),
            MetricSpec(
                "heartbeat_upsert_duration_seconds",
                "histogram",
                "Time of a batch that landed, from its hand-over to the acknowledgement.",
                "If it grows: locks, vacuum, an index too many, a slow disk, a far database.",
            ),
            MetricSpec(
                "heartbeat_upsert_rows",
                "histogram",
                "Rows of a batch that landed.",
                "Small ones are the rule below a few thousand rooms. At "
                "HEARTBEAT_BUFFER_SIZE_MAX there is a backlog.",
            ),
            MetricSpec(
                "heartbeat_write_delay_seconds",
                "histogram",
                "From the moment at which the first room of a batch was due to its "
                "acknowledgement.",
                "Beyond a second the promise is broken: the database does not keep up, or came "
                "back just now.",
            ),
        ),
    ),
    Section(
        "Checkpoints",
        "A checkpoint makes state durable and commits offsets. What was done since the last one is "
        "done again after a crash.",
        (
            MetricSpec(
                "heartbeat_checkpoints_total",
                "counter",
                "Checkpoints completed.",
                "One for each HEARTBEAT_CHECKPOINT_MS.",
            ),
            MetricSpec(
                "heartbeat_checkpoint_failures_total",
                "counter",
                "Checkpoints that failed; the next one does what they left.",
                "The log says why: brokers away, or the local disk full.",
            ),
            MetricSpec(
                "heartbeat_checkpoint_age_seconds",
                "gauge",
                "Time since the last completed checkpoint.",
                "Beyond a few intervals, brokers do not acknowledge: everything since then is "
                "repeated after a crash, and a restart now takes as long as that.",
            ),
            MetricSpec(
                "heartbeat_checkpoint_interval_seconds",
                "gauge",
                "HEARTBEAT_CHECKPOINT_MS, to compare the age with.",
                "Nothing.",
            ),
            MetricSpec(
                "heartbeat_checkpoint_duration_seconds",
                "histogram",
                "Time of a checkpoint that was completed.",
                "Near the interval: brokers or the disk are slow. Fewer rooms for each worker, or "
                "a longer interval.",
            ),
            MetricSpec(
                "heartbeat_checkpoint_records_total",
                "counter",
                "Changelog records of completed checkpoints.",
                "About two for each row written, and one for each room that changed.",
            ),
            MetricSpec(
                "heartbeat_checkpoint_bytes_total",
                "counter",
                "Bytes handed to the brokers for the changelogs, before compression.",
                "The load that checkpoints are for brokers and network.",
            ),
            MetricSpec(
                "heartbeat_batches_held",
                "gauge",
                "Batches of records that wait for a checkpoint to be acknowledged.",
                "Grows with the age of the last checkpoint.",
            ),
            MetricSpec(
                "heartbeat_outbox_batches",
                "gauge",
                "Batches of forwarded records and dead letters that the brokers have not "
                "acknowledged.",
                "Near 64, reading waits for the brokers.",
            ),
            MetricSpec(
                "heartbeat_outbox_retries_total",
                "counter",
                "Such batches that were not taken and are sent again.",
                "Brokers away, or the topic refuses: the log says which.",
            ),
        ),
    ),
    Section(
        "Partitions and state",
        "",
        (
            MetricSpec(
                "heartbeat_partitions_owned",
                "gauge",
                "Partitions that this worker owns, recovered.",
                "Over all workers it must add up to heartbeat_partitions. 0 for good: more workers "
                "than partitions.",
            ),
            MetricSpec(
                "heartbeat_partitions",
                "gauge",
                "Partitions of the tables, whoever owns them.",
                "Nothing. The same everywhere.",
            ),
            MetricSpec(
                "heartbeat_rebalances_total",
                "counter",
                "How often partitions were given up, the first joining of the group included.",
                "Without a deployment: workers die or lose their session. See restarts, loop "
                "stalls, brokers.",
            ),
            MetricSpec(
                "heartbeat_rebalance_duration_seconds",
                "histogram",
                "From giving partitions up until those that came instead were recovered.",
                "Nothing is written meanwhile. It grows with what is to be read from changelogs: "
                "keep the volumes of workers.",
            ),
            MetricSpec(
                "heartbeat_recovered_records_total",
                "counter",
                "Changelog records read to bring local state up to date.",
                "Few with a volume that survived; all of the state without one.",
            ),
            MetricSpec(
                "heartbeat_state_bytes",
                "gauge",
                "Size of a table's local copy, on disk and in RocksDB's memtables.",
                "Grows with the number of rooms. HEARTBEAT_STATE_TTL_MS bounds it.",
                ("table",),
            ),
            MetricSpec(
                "heartbeat_data_free_bytes",
                "gauge",
                "Free space of the file system that holds HEARTBEAT_DATA_DIR.",
                "At 0 checkpoints fail. Grow the volume.",
            ),
        ),
    ),
    Section(
        "Jobs that judge messages",
        "The message filter, and the jobs for which a message counts once. `worker_job` is the "
        "name of the job.",
        (
            MetricSpec(
                "heartbeat_judged_total",
                "counter",
                "What became of records, by outcome: records (read from the source), tombstones, "
                "rejected (dead letters), unique, duplicates, printed, suppressed, exempt, "
                "unjudged; repeated are those that came once more after a crash and had been "
                "judged.",
                "unique and duplicates, or printed and suppressed, add up to what was judged. Many "
                "repeated: workers crash, or lose their partitions without a checkpoint.",
                ("worker_job", "outcome"),
            ),
            MetricSpec(
                "heartbeat_tracking_events_total",
                "counter",
                "Tracking events by project, SDK, policy (mark or drop) and outcome: unique, "
                "duplicates, exempt (events that cannot be told apart), unjudged (the door passed "
                "them on without a verdict). The names beyond the first 50 projects and 20 SDKs "
                "are counted as other.",
                "Duplicates of 1 to 10 percent are usual for browsers and mini-programs that "
                "report in batches. Many more: an SDK sends its cache again and again.",
                ("project", "lib", "policy", "outcome"),
            ),
            MetricSpec(
                "heartbeat_continuity_events_total",
                "counter",
                "Odd places in sequences of ids, by kind: gap, repeat, out-of-order, reset.",
                "Gaps: messages are lost on the way to the topic. Resets: a source has connected "
                "anew.",
                ("worker_job", "kind"),
            ),
            MetricSpec(
                "heartbeat_layer_checks_total",
                "counter",
                "Messages that a layer has looked up.",
                "To compare the hits with.",
                ("worker_job", "layer"),
            ),
            MetricSpec(
                "heartbeat_layer_hits_total",
                "counter",
                "Messages that a layer has recognised as duplicates.",
                "Many in the first layer: the source repeats itself. In the second: several "
                "sources tell the same. In the third: the layers before it miss something, or the "
                "canonical form makes different messages one.",
                ("worker_job", "layer"),
            ),
            MetricSpec(
                "heartbeat_layer_abstentions_total",
                "counter",
                "Messages about which a layer had nothing to say: a field was missing or invalid.",
                "All of them: the configuration names fields that the messages do not have.",
                ("worker_job", "layer"),
            ),
            MetricSpec(
                "heartbeat_layer_seconds_total",
                "counter",
                "Time that a layer's checks took, as a sample of them tells.",
                "Divided by the checks, the cost of one: some microseconds. It grows when state is "
                "read from a slow disk.",
                ("worker_job", "layer"),
            ),
            MetricSpec(
                "heartbeat_remembered_total",
                "counter",
                "Entries of the tables that forget: put, and expired.",
                "In a steady state both grow alike. Where expired falls behind, so does the sweep.",
                ("worker_job", "what"),
            ),
        ),
    ),
    Section(
        "The process",
        "Besides these there are the client library's own: process_* (memory, CPU, open files, "
        "start time) and python_*.",
        (
            MetricSpec(
                "heartbeat_ready",
                "gauge",
                "What /health/ready says: 1 once an assignment has come and its state is "
                "recovered.",
                "0 for minutes: the log says what it waits for.",
            ),
            MetricSpec(
                "heartbeat_live",
                "gauge",
                "What /health/live says: 1 while the process can make progress.",
                "At 0 restart it, if nothing does that by itself.",
            ),
            MetricSpec(
                "heartbeat_loop_stall_seconds_max",
                "gauge",
                "Longest time within the last minute for which the event loop was held up.",
                "Beyond a second, promises about time break; near the session timeout, partitions "
                "are lost. Too little CPU, swapping, or a disk that hangs.",
            ),
            MetricSpec(
                "heartbeat_worker_info",
                "info",
                "Which worker this is: application id, and directory of its state.",
                "Nothing.",
                ("app_id", "directory", "version"),
            ),
            MetricSpec(
                "heartbeat_build_info",
                "info",
                "Versions: of heartbeat-stream, Python, and the libraries that matter.",
                "More than one at once: a deployment is under way, or was left half done.",
                ("version", "python", "faust", "aiokafka", "asyncpg", "rocksdict"),
            ),
        ),
    ),
    Section(
        "The collector",
        "Of `heartbeat-stream collect`, which has a `/metrics` of its own. Labels of projects "
        "and SDKs are bounded: those beyond the first hundred and the first thirty are `other`.",
        (
            MetricSpec(
                "heartbeat_collect_reports_total",
                "counter",
                "Requests with a report, by what the client was told for: acknowledged by Kafka, "
                "spooled on disk, or refused with 503.",
                "Spooled: Kafka is away or slow. Refused: the spool is full too, and clients lose "
                "what they do not send again.",
                ("outcome",),
            ),
            MetricSpec(
                "heartbeat_collect_events_total",
                "counter",
                "Events that Kafka has, duplicates that were dropped among them, by project, SDK, "
                "policy and verdict: first, duplicate, unjudged (the store did not answer), exempt "
                "(no identity), unasked (judged behind Kafka).",
                "Duplicates of one SDK that grow: it reports in batches from several pages. "
                "Unjudged: look at the store.",
                ("project", "lib", "policy", "verdict"),
            ),
            MetricSpec(
                "heartbeat_collect_bad_total",
                "counter",
                "Reports and events that went to the dead-letter topic, by reason.",
                "Look at some in the dead-letter topic. Mend the SDK, or block who sends them.",
                ("reason",),
            ),
            MetricSpec(
                "heartbeat_collect_drained_total",
                "counter",
                "Reports of the spool that Kafka has by now.",
                "It follows each outage of Kafka.",
            ),
            MetricSpec(
                "heartbeat_collect_request_duration_seconds",
                "histogram",
                "From a request's head to its answer: what a client waits for.",
                "High: Kafka is slow, or the store of seen events.",
            ),
            MetricSpec(
                "heartbeat_collect_store_failures_total",
                "counter",
                "Times that the store of seen events failed, or did not answer in time.",
                "Events pass unjudged meanwhile, and copies of them are missed. Look at Redis or "
                "PostgreSQL, and at HEARTBEAT_COLLECT_STORE_WAIT_MS.",
            ),
            MetricSpec(
                "heartbeat_collect_spool_bytes",
                "gauge",
                "What waits on disk for Kafka.",
                "Growing: Kafka takes nothing. See the alert HeartbeatStreamSpoolFilling.",
            ),
            MetricSpec(
                "heartbeat_collect_spool_bytes_max",
                "gauge",
                "HEARTBEAT_COLLECT_SPOOL_MB, in bytes.",
                "Nothing.",
            ),
            MetricSpec(
                "heartbeat_collect_ready",
                "gauge",
                "1 while a report would be taken, by Kafka or by the spool.",
                "At 0 the balancer sends nobody here.",
            ),
        ),
    ),
)

METRICS = {metric.name: metric for section in SECTIONS for metric in section.metrics}
