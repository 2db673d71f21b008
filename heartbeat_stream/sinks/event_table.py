"""The table of tracking events: each once, by where it stood in Kafka, in a partition for each day.

The day is that of ``received_at``, in UTC. That time is set once and travels with the event, so
that an event which is delivered again meets itself.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta

from heartbeat_stream.sinks.table import NAME_BYTES_MAX, Table, quote

__all__ = [
    "TABLE_BYTES_MAX",
    "attach_sql",
    "event_ddl",
    "event_sql",
    "partition_ddl",
    "partition_of",
]

TABLE_BYTES_MAX = NAME_BYTES_MAX - len("_p20260131")
"""The longest name of such a table: its partitions' names are longer."""


def event_ddl(table: Table) -> str:
    """Give the statement that creates the table if it is missing."""
    return f"""\
CREATE TABLE IF NOT EXISTS {table.quoted} (
  project TEXT NOT NULL, distinct_id TEXT NOT NULL, lib TEXT NOT NULL, event TEXT NOT NULL,
  type TEXT NOT NULL, track_id TEXT, time BIGINT, flush_time BIGINT,
  received_at TIMESTAMPTZ NOT NULL, stored_at TIMESTAMPTZ NOT NULL DEFAULT now(), remark TEXT,
  document JSONB NOT NULL,
  topic TEXT, partition INTEGER, "offset" BIGINT,
  PRIMARY KEY (received_at, topic, partition, "offset")
) PARTITION BY RANGE (received_at);
CREATE INDEX IF NOT EXISTS {quote(_index(table, "_p"))}
  ON {table.quoted} (project, received_at);
CREATE INDEX IF NOT EXISTS {quote(_index(table, "_i"))}
  ON {table.quoted} (project, distinct_id, track_id, time)"""


def _index(table: Table, end: str) -> str:
    return table.name + end


def event_sql(table: Table) -> str:
    """Give the statement that stores a batch, whatever its size.

    Its one parameter is a JSON array with an array ``[project, distinct_id, lib, event, type,
    track_id, time, flush_time, received_at, remark, document, topic, partition, offset]`` for each
    row: times in milliseconds, the document as text. A row that is there already stays as it is.
    """
    return f"""\
INSERT INTO {table.quoted} (project, distinct_id, lib, event, type, track_id, time, flush_time,
  received_at, remark, document, topic, partition, "offset")
SELECT r->>0, r->>1, r->>2, r->>3, r->>4, r->>5, (r->>6)::int8, (r->>7)::int8,
  to_timestamp((r->>8)::float8 / 1000), r->>9, (r->>10)::jsonb,
  r->>11, (r->>12)::int4, (r->>13)::int8
FROM jsonb_array_elements($1::jsonb) AS r
ORDER BY 9, 12, 13, 14
ON CONFLICT (received_at, topic, partition, "offset") DO NOTHING"""


def partition_of(table: Table, day: date) -> Table:
    """The table that holds a day's events."""
    return Table(table.schema, f"{table.name}_p{day:%Y%m%d}")


def partition_ddl(table: Table, day: date) -> str:
    """Give the statement that creates a day's partition, apart from the table.

    It is attached afterwards: to create it as a partition would lock out all who read and write.
    """
    return (
        f"CREATE TABLE {partition_of(table, day).quoted} "
        f"(LIKE {table.quoted} INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING INDEXES)"
    )


def attach_sql(table: Table, day: date) -> str:
    """Give the statement that makes a day's events go there."""
    start = datetime.combine(day, time(), UTC)
    return (
        f"ALTER TABLE {table.quoted} ATTACH PARTITION {partition_of(table, day).quoted} "
        f"FOR VALUES FROM ('{start.isoformat()}') TO ('{(start + timedelta(1)).isoformat()}')"
    )
