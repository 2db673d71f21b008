"""The table that unique messages are appended to: each once, by where it stood in Kafka."""

from __future__ import annotations

from heartbeat_stream.sinks.table import Table

__all__ = ["append_sql", "message_ddl"]


def message_ddl(table: Table) -> str:
    """Give the statement that creates the table if it is missing."""
    return f"""\
CREATE TABLE IF NOT EXISTS {table.quoted} (
  topic TEXT, partition INTEGER, "offset" BIGINT, at_ms BIGINT NOT NULL, message JSONB NOT NULL,
  PRIMARY KEY (topic, partition, "offset")
)"""


def append_sql(table: Table) -> str:
    """Give the statement that appends a batch, whatever its size.

    Its one parameter is a JSON array with an array ``[topic, partition, offset, at_ms, message]``
    for each row, the message as text. A row that is there already stays as it is, so that a
    redelivery after a crash changes nothing.
    """
    return f"""\
INSERT INTO {table.quoted} (topic, partition, "offset", at_ms, message)
SELECT r->>0, (r->>1)::int4, (r->>2)::int8, (r->>3)::int8, (r->>4)::jsonb
FROM jsonb_array_elements($1::jsonb) AS r
ORDER BY 1, 2, 3
ON CONFLICT (topic, partition, "offset") DO NOTHING"""
