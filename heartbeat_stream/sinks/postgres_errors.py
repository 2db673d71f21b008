"""Whose fault is it? PostgreSQL's and asyncpg's errors, told apart by who can mend them.

Three answers, and the sink acts on nothing else:

- a ``RowFault``: something in the rows themselves. Trying again is useless, so the sink narrows it
  down to the guilty rows.
- a ``SinkUnavailable``: the database, the network, or the operator's set-up. The rows are right
  and stay pending; the caller tries again later, with what is newest then.
- anything else is a defect of this program and is left to rise.

The lists are by SQLSTATE, never by message: messages are translated by the server.
"""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass

import asyncpg

from heartbeat_stream.tls import is_another_hosts, words_about

# Where in a batch's course the error arose. Only what the rows themselves were part of can be their
# fault: the statement that carries them, and the commit (deferred constraints are checked there).
CONNECTING = "connecting"
PREPARING = "preparing"
WRITING = "writing"

MESSAGE_MAX = 190  # with the SQLSTATE in front it fits a dead letter's detail


class SinkUnavailable(Exception):
    """The batch did not land, and none of its rows is to blame. Try again later.

    ``kind`` is a short word of a bounded list (a metric's label), ``sqlstate`` the server's code
    where there was one. The text is one line without row values and without the password.
    ``operator`` is true where waiting alone will not help: somebody has to change something (a
    grant, the table, a password). The rows stay pending all the same.
    """

    def __init__(self, kind: str, message: str, *, sqlstate: str | None = None) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.message = message
        self.sqlstate = sqlstate
        self.operator = kind in OPERATOR_KINDS


@dataclass(frozen=True, slots=True)
class RowFault:
    """What the database (or the driver, while encoding) has against at least one row of a batch."""

    sqlstate: str
    detail: str  # "23514 new row for relation ... violates check constraint ...", no row values


# The first match counts: the whole code, then its class.
UNAVAILABLE: dict[str, str] = {
    "08": "connection",
    "08P01": "protocol",
    "0A000": "unsupported",
    "25": "transaction",
    "25006": "read-only",
    "26": "prepared-statement",
    "28": "authentication",
    "2D": "transaction",
    "39": "trigger",
    "3B": "transaction",
    "3D": "undefined-database",
    "3F": "undefined-table",
    "40": "serialization",
    "40P01": "deadlock",
    "42": "table",  # wrong type, no unique index for the key, ambiguous names, ...
    "42501": "permission",
    "42703": "undefined-column",
    "42P01": "undefined-table",
    "42P05": "prepared-statement",
    "53": "resources",
    "53100": "disk-full",
    "53200": "out-of-memory",
    "53300": "too-many-connections",
    "54": "limit",
    "55": "lock",
    "55000": "object-state",
    "57": "admin-shutdown",
    "57014": "timeout",
    "57P03": "starting",
    "57P04": "undefined-database",
    "58": "io",
    "72": "snapshot",
    "F0": "configuration",
    "HV": "foreign-data",
    "XX": "internal",
}

# What one row can cause, though its neighbours in the batch are fine.
ROW: frozenset[str] = frozenset(
    {
        "09",  # triggered action exception
        "21",  # two keys of the batch are one for the column's collation: alone, each lands
        "22",  # data exception: too long, out of range, not in the database's encoding
        "23",  # not null, check, unique, foreign key, exclusion, no partition for the row
        "27",  # triggered data change violation
        "38000",  # an exception in a trigger written in Python, Perl, ...
        "44",  # a view's check option
        "54000",  # index row too large
        "P0",  # raise_exception, no_data_found, ... in a PL/pgSQL trigger
    }
)

# The primary message of these quotes the value.
QUOTES_VALUES: frozenset[str] = frozenset({"22003", "22007", "22008", "22P02"})

# Not a row's, although their class is: they speak of a parameter or of the server.
NOT_ROW: dict[str, str] = {
    "22023": "configuration",  # invalid parameter value, as of a setting
    "P0000": "trigger",  # plpgsql_error: the trigger itself is wrong
}

OPERATOR_KINDS: frozenset[str] = frozenset(
    {
        "authentication",
        "configuration",
        "permission",
        "prepared-statement",
        "protocol",
        "table",
        "tls",
        "trigger",
        "undefined-column",
        "undefined-database",
        "undefined-table",
        "unsupported",
    }
)

# After one of these an idle connection is not to be trusted either: it may lead to a server that
# was demoted, is shutting down or has stopped answering, while a new one finds the right one.
RECONNECT_KINDS: frozenset[str] = frozenset(
    {"admin-shutdown", "connection", "read-only", "starting", "timeout", "prepared-statement"}
)

KINDS: frozenset[str] = (
    frozenset(UNAVAILABLE.values())
    | frozenset(NOT_ROW.values())
    | frozenset({"stopped", "tls", "unknown"})
)


def classify(error: BaseException, during: str) -> RowFault | SinkUnavailable | None:
    """Answer whose fault ``error`` is, or None if it is a defect of this program.

    ``during`` is one of the constants above. Never blocks, never raises.
    """
    if isinstance(error, asyncpg.PostgresError):
        last_words = error.__cause__
        if isinstance(error, asyncpg.ConnectionDoesNotExistError) and isinstance(
            last_words, asyncpg.PostgresError
        ):
            # What the server said when it hung up. It does not end a session because of a row.
            return _server_error(last_words, CONNECTING)
        return _server_error(error, during)
    if isinstance(error, TimeoutError):
        return SinkUnavailable("timeout", f"no answer from the database while {during}")
    if isinstance(error, ssl.SSLError):
        return SinkUnavailable("tls", _one_line(_tls_words(error)))
    if isinstance(error, asyncpg.exceptions.ClientConfigurationError):
        return SinkUnavailable("configuration", _one_line(error.args[0]))
    if isinstance(error, OSError):
        return SinkUnavailable("connection", _one_line(str(error) or type(error).__name__))
    if isinstance(error, asyncpg.exceptions.TargetServerAttributeNotMatched):
        return SinkUnavailable("read-only", _one_line(str(error)))
    if isinstance(error, asyncpg.InterfaceError | asyncpg.InternalClientError):
        if during == WRITING and isinstance(error, ValueError):
            return _encoding_fault(error)
        # "connection is closed" and the like: asyncpg has one class for all of them, and a
        # connection that answers so is thrown away in any case.
        return SinkUnavailable("connection", _one_line(str(error.args[0] if error.args else error)))
    return None


def _tls_words(error: ssl.SSLError) -> str:
    if not isinstance(error, ssl.SSLCertVerificationError):
        return str(error)
    said = words_about(error)
    if is_another_hosts(error):
        return (
            f"the server's certificate is another host's ({said}): name the host in "
            "HEARTBEAT_DATABASE_URL as it does"
        )
    return (
        f"the server's certificate is not trusted ({said}): sslrootcert must name the "
        "certificates of the authority that signed it"
    )


def _server_error(error: asyncpg.PostgresError, during: str) -> RowFault | SinkUnavailable:
    if error.severity is None and during == WRITING and error.sqlstate == "22000":
        return _encoding_fault(error)  # asyncpg's own, raised before anything was sent
    sqlstate = error.sqlstate or ""
    # args[0] is the primary message. Detail, hint and context may hold the row's values.
    message = _one_line(error.args[0] if error.args else type(error).__name__)
    if during == WRITING and is_row_fault(sqlstate):
        if sqlstate in QUOTES_VALUES:
            message = re.sub(r'"[^"]*"', '"..."', message)
        return RowFault(sqlstate, f"{sqlstate} {message}")
    kind = unavailable_kind(sqlstate)
    if kind in ("prepared-statement", "protocol"):
        message += "; behind a pooler in transaction mode set HEARTBEAT_DATABASE_POOLER=true"
    return SinkUnavailable(
        kind, f"{message} ({sqlstate})" if sqlstate else message, sqlstate=sqlstate or None
    )


def is_row_fault(sqlstate: str) -> bool:
    """Tell whether a row can be the cause of this SQLSTATE.

    A code of a class that PostgreSQL does not define was chosen by somebody for
    ``RAISE ... USING ERRCODE`` in a trigger, which is a judgement on a row.
    """
    if sqlstate in NOT_ROW:
        return False
    if sqlstate in ROW:
        return True
    if sqlstate in UNAVAILABLE:
        return False
    if sqlstate[:2] in ROW:
        return True
    return bool(sqlstate) and sqlstate[:2] not in UNAVAILABLE and sqlstate[:2] not in DEFINED


def unavailable_kind(sqlstate: str) -> str:
    """Give the word for a SQLSTATE that is not a row's."""
    return (
        NOT_ROW.get(sqlstate)
        or UNAVAILABLE.get(sqlstate)
        or UNAVAILABLE.get(sqlstate[:2])
        or "unknown"
    )


# Classes of PostgreSQL's documentation that stand in neither table above: they cannot come from
# this statement, and if they did, it would be no row's fault.
DEFINED: frozenset[str] = frozenset(
    {"00", "01", "02", "03", "0B", "0F", "0L", "0P", "0Z", "10", "20", "24", "2B", "2F", "34", "38"}
)

_ARGUMENT = re.compile(r"\$(\d+)")


def _encoding_fault(error: Exception) -> RowFault:
    """asyncpg's message quotes the batch's values: keep only which column it was."""
    found = _ARGUMENT.search(str(error.args[0] if error.args else ""))
    which = f"column {found[1]}" if found else "a column"
    return RowFault("22000", f"22000 the value for {which} cannot be encoded for the database")


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MESSAGE_MAX else line[: MESSAGE_MAX - 3] + "..."
