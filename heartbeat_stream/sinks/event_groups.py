"""Statements over the table of events that find the copies of an event, and change their remarks.

An event's identity is told by its document, which SQL cannot read as the core does. The columns of
the *key* (``distinct_id``, ``track_id`` and ``time``, of one project) are the same in all copies,
and there is an index on them; events that share a key and are no copies are few. So SQL finds keys,
and the core decides about their rows.
"""

from __future__ import annotations

from heartbeat_stream.core.tracking import MARK
from heartbeat_stream.sinks.table import Table

__all__ = ["copies_sql", "delete_copies_sql", "keys_sql", "remark_sql"]

# Whole seconds and milliseconds alike, as rows are stored: see ``event_sql``.
_TIMES = "to_timestamp({}::float8 / 1000)"
# A time that does not fit into the column, as opposed to none at all.
_ODD_TIME = "jsonb_typeof(document->'time') IN ('number', 'string')"
_JUDGED = f"type = ANY($2::text[]) AND track_id IS NOT NULL AND (time IS NOT NULL OR {_ODD_TIME})"


def keys_sql(table: Table) -> str:
    """Give the query for the keys with something to look at, in no order.

    Parameters: ``$1`` the project, ``$2`` the types that are judged; ``$3`` and ``$4`` from when
    and until when (itself left out) events are looked at, ``$5`` and ``$6`` the same for those of
    which a key needs one at least: received, in ms. A key is answered, as ``(distinct_id, track_id,
    time)``, if it has more than one event, or a marked one.
    """
    low, high, start, end = (_TIMES.format(f"${number}") for number in (3, 4, 5, 6))
    return f"""\
SELECT distinct_id, track_id, time FROM {table.quoted}
WHERE project = $1 AND {_JUDGED} AND received_at >= {low} AND received_at < {high}
GROUP BY distinct_id, track_id, time
HAVING (count(*) > 1 OR bool_or(starts_with(remark, '{MARK}')))
  AND bool_or(received_at >= {start} AND received_at < {end})"""


def copies_sql(table: Table, *, lock: bool = False) -> str:
    """Give the query for all rows of some keys, whenever they were received.

    Parameters: ``$1`` the project, ``$2`` the types; ``$3``, ``$4`` and ``$5`` the keys' columns.
    ``document`` is what an identity is read from, and no more. ``lock``: nobody changes or deletes
    one of the rows before the transaction ends; all who lock do it in one order.
    """
    return f"""\
SELECT topic, partition, "offset", received_at, flush_time, remark, jsonb_build_object(
    'type', document->'type', 'distinct_id', document->'distinct_id',
    '_track_id', document->'_track_id', 'time', document->'time')::text AS document
FROM {table.quoted} AS e
JOIN unnest($3::text[], $4::text[], $5::int8[]) AS k(distinct_id, track_id, time)
  ON e.distinct_id = k.distinct_id AND e.track_id = k.track_id
    AND e.time IS NOT DISTINCT FROM k.time
WHERE e.project = $1 AND e.type = ANY($2::text[])
ORDER BY received_at, topic, partition, "offset"{" FOR UPDATE OF e" if lock else ""}"""


# The bounds keep it to the partitions that hold the rows.
_PLACES = """\
e.topic = c.topic AND e.partition = c.partition AND e."offset" = c."offset"
  AND e.received_at = c.received_at AND e.received_at BETWEEN $5 AND $6"""
_PLACE_COLUMNS = "$1::text[], $2::int4[], $3::int8[], $4::timestamptz[]"


def remark_sql(table: Table) -> str:
    """Give the statement that changes remarks, of rows where they are still what they were.

    Parameters: ``$1`` to ``$4`` topics, partitions, offsets and times of the rows, ``$5`` and
    ``$6`` the earliest and latest of these times, ``$7`` the remarks as they were and ``$8`` as
    they are to be.
    """
    return f"""\
UPDATE {table.quoted} AS e SET remark = c.after
FROM unnest({_PLACE_COLUMNS}, $7::text[], $8::text[])
  AS c(topic, partition, "offset", received_at, before, after)
WHERE {_PLACES} AND e.remark IS NOT DISTINCT FROM c.before"""


def delete_copies_sql(table: Table) -> str:
    """Give the statement that deletes rows. Parameters: ``$1`` to ``$6`` as for remarks."""
    return f"""\
DELETE FROM {table.quoted} AS e
USING unnest({_PLACE_COLUMNS}) AS c(topic, partition, "offset", received_at)
WHERE {_PLACES}"""
