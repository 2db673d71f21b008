"""The tables that a job's messages are appended to: each once, by where it stood in Kafka."""

from __future__ import annotations

from heartbeat_stream.sinks.table import Table

__all__ = ["append_sql", "append_text_sql", "message_ddl", "text_ddl"]


def message_ddl(table: Table) -> str:
    """Give the statement that creates the table of JSON messages if it is missing."""
    return _ddl(table, "message JSONB")


def text_ddl(table: Table) -> str:
    """Give the statement that creates the table of texts if it is missing."""
    return _ddl(table, "text TEXT")


def append_sql(table: Table) -> str:
    """Give the statement that appends a batch of JSON messages, whatever its size.

    Its one parameter is a JSON array with an array ``[topic, partition, offset, at_ms, message]``
    for each row, the message as text. A row that is there already stays as it is, so that a
    redelivery after a crash changes nothing.
    """
    return _append(table, "message", "(r->>4)::jsonb")


def append_text_sql(table: Table) -> str:
    """The same for texts."""
    return _append(table, "text", "r->>4")


def _ddl(table: Table, content: str) -> str:
    return f"""\
CREATE TABLE IF NOT EXISTS {table.quoted} (
  topic TEXT, partition INTEGER, "offset" BIGINT, at_ms BIGINT NOT NULL, {content} NOT NULL,
  PRIMARY KEY (topic, partition, "offset")
)"""


def _append(table: Table, column: str, content: str) -> str:
    return f"""\
INSERT INTO {table.quoted} (topic, partition, "offset", at_ms, {column})
SELECT r->>0, (r->>1)::int4, (r->>2)::int8, (r->>3)::int8, {content}
FROM jsonb_array_elements($1::jsonb) AS r
ORDER BY 1, 2, 3
ON CONFLICT (topic, partition, "offset") DO NOTHING"""
