"""Whose fault an error is."""

import ssl

import asyncpg
import pytest

from heartbeat_stream.core.reasons import DETAIL_MAX
from heartbeat_stream.sinks.postgres_errors import (
    CONNECTING,
    KINDS,
    OPERATOR_KINDS,
    PREPARING,
    RECONNECT_KINDS,
    WRITING,
    RowFault,
    SinkUnavailable,
    classify,
)


def server_error(sqlstate: str, message: str = "text", **fields: str) -> asyncpg.PostgresError:
    """An error as asyncpg makes it from the server's message."""
    return asyncpg.PostgresError.new(
        {"S": "ERROR", "V": "ERROR", "C": sqlstate, "M": message, **fields}
    )


ROW_FAULTS = [
    "22001",  # too long
    "22003",  # out of range
    "22021",  # not in the repertoire
    "22P02",
    "22P05",
    "23000",
    "23502",
    "23503",
    "23505",
    "23514",
    "23P01",
    "21000",  # ON CONFLICT a second time: two rows of the batch are one for the database
    "27000",
    "38000",
    "44000",
    "54000",  # index row too large
    "09000",
    "P0001",
    "P0002",
    "P0003",
    "P0004",
    "HB001",  # RAISE ... USING ERRCODE: nobody's class but the operator's
    "77777",
]

UNAVAILABLE = {
    "08000": "connection",
    "08006": "connection",
    "08P01": "protocol",
    "0A000": "unsupported",
    "22023": "configuration",
    "25006": "read-only",
    "25P02": "transaction",
    "25P03": "transaction",
    "26000": "prepared-statement",
    "28000": "authentication",
    "28P01": "authentication",
    "2D000": "transaction",
    "34000": "unknown",
    "38002": "unknown",
    "39P01": "trigger",
    "3D000": "undefined-database",
    "3F000": "undefined-table",
    "40000": "serialization",
    "40001": "serialization",
    "40P01": "deadlock",
    "42501": "permission",
    "42703": "undefined-column",
    "42804": "table",
    "42P01": "undefined-table",
    "42P05": "prepared-statement",
    "42P10": "table",
    "53000": "resources",
    "53100": "disk-full",
    "53200": "out-of-memory",
    "53300": "too-many-connections",
    "54001": "limit",
    "55000": "object-state",
    "55006": "lock",
    "55P03": "lock",
    "57014": "timeout",
    "57P01": "admin-shutdown",
    "57P02": "admin-shutdown",
    "57P03": "starting",
    "57P04": "undefined-database",
    "57P05": "admin-shutdown",
    "58000": "io",
    "58030": "io",
    "F0000": "configuration",
    "HV000": "foreign-data",
    "P0000": "trigger",
    "XX000": "internal",
    "XX001": "internal",
}


@pytest.mark.parametrize("sqlstate", ROW_FAULTS)
def test_a_row_can_cause_it(sqlstate: str) -> None:
    fault = classify(server_error(sqlstate), WRITING)
    assert fault == RowFault(sqlstate, f"{sqlstate} text")


@pytest.mark.parametrize(("sqlstate", "kind"), UNAVAILABLE.items())
def test_no_row_is_to_blame(sqlstate: str, kind: str) -> None:
    fault = classify(server_error(sqlstate), WRITING)
    assert isinstance(fault, SinkUnavailable)
    assert (fault.kind, fault.sqlstate) == (kind, sqlstate)
    assert sqlstate in str(fault)
    assert kind in KINDS


def test_every_code_that_asyncpg_knows_gets_an_answer_of_the_bounded_list() -> None:
    for sqlstate, kind in asyncpg.exceptions.PostgresError._message_map.items():
        if not issubclass(kind, asyncpg.PostgresError):
            continue  # a warning
        fault = classify(server_error(sqlstate), WRITING)
        assert isinstance(fault, RowFault) or (
            isinstance(fault, SinkUnavailable) and fault.kind in KINDS
        ), sqlstate


@pytest.mark.parametrize("during", [CONNECTING, PREPARING])
@pytest.mark.parametrize("sqlstate", ROW_FAULTS)
def test_before_the_rows_are_sent_no_row_is_to_blame(sqlstate: str, during: str) -> None:
    assert isinstance(classify(server_error(sqlstate), during), SinkUnavailable)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (TimeoutError(), "timeout"),
        (ConnectionRefusedError(111, "Connect call failed"), "connection"),
        (OSError("Multiple exceptions"), "connection"),
        (ssl.SSLCertVerificationError("certificate verify failed"), "tls"),
        (asyncpg.InterfaceError("connection is closed"), "connection"),
        (asyncpg.ConnectionDoesNotExistError("connection was closed"), "connection"),
        (asyncpg.InternalClientError("unexpected"), "connection"),
        (asyncpg.TargetServerAttributeNotMatched("none of the hosts"), "read-only"),
        (asyncpg.ClientConfigurationError("`sslmode` parameter must be one of"), "configuration"),
    ],
)
def test_errors_without_a_sqlstate(error: Exception, kind: str) -> None:
    for during in (CONNECTING, WRITING):
        fault = classify(error, during)
        assert isinstance(fault, SinkUnavailable)
        assert fault.kind == kind


def test_a_defect_of_this_program_is_nobody_elses_fault() -> None:
    assert classify(TypeError("a bug"), WRITING) is None


def test_what_asyncpg_cannot_encode_is_a_row_fault_that_names_the_column_alone() -> None:
    error = asyncpg.DataError("invalid input for query argument $2: ['secret', ...] (expected str)")
    fault = classify(error, WRITING)
    assert isinstance(fault, RowFault)
    assert "column 2" in fault.detail
    assert "secret" not in fault.detail


def test_the_rows_values_stay_out_of_the_text() -> None:
    violated = server_error(
        "23514", "violates check constraint", D="Failing row contains (7, secret).", H="secret"
    )
    quoted = server_error("22P02", 'invalid input syntax for type smallint: "secret"')
    for error in (violated, quoted):
        fault = classify(error, WRITING)
        assert isinstance(fault, RowFault)
        assert "secret" not in fault.detail


def test_a_detail_is_one_line_and_fits_a_dead_letter() -> None:
    fault = classify(server_error("P0001", "long\nword " * 100), WRITING)
    assert isinstance(fault, RowFault)
    assert "\n" not in fault.detail
    assert len(fault.detail) <= DETAIL_MAX


def test_a_pooler_that_was_not_announced_is_explained() -> None:
    for sqlstate in ("26000", "42P05", "08P01"):
        assert "HEARTBEAT_DATABASE_POOLER=true" in str(classify(server_error(sqlstate), WRITING))


def test_what_only_an_operator_can_mend_says_so() -> None:
    assert OPERATOR_KINDS <= KINDS
    assert SinkUnavailable("permission", "").operator
    assert not SinkUnavailable("connection", "").operator


def test_kinds_after_which_idle_connections_are_cut_exist() -> None:
    assert RECONNECT_KINDS <= KINDS
