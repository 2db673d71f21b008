"""The log: its two forms, its silence about passwords, its patience with talkative libraries."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Iterator

import mode
import pytest
from aiokafka.errors import UnknownTopicOrPartitionError

from heartbeat_stream.logs import RepeatFilter, set_up_logs
from heartbeat_stream.settings import Settings

OURS = logging.getLogger("heartbeat_stream.some.part")
THEIRS = logging.getLogger("aiokafka.client")


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.getLogger("heartbeat_stream").setLevel(logging.NOTSET)
    logging.captureWarnings(False)


def log_of(environ: dict[str, str], *, quiet: bool = False) -> io.StringIO:
    stream = io.StringIO()
    set_up_logs(Settings.load(environ), quiet=quiet, stream=stream)
    return stream


def test_the_human_form() -> None:
    stream = log_of({})
    OURS.info("wrote %d rows\nof two lines", 3)
    time, level, rest = stream.getvalue().split(maxsplit=2)
    assert len(time) == len("12:00:00.123")
    assert (level, rest) == ("INFO", "some.part: wrote 3 rows of two lines\n")


def test_the_json_form_has_one_line_even_for_an_exception() -> None:
    stream = log_of({"HEARTBEAT_LOG_FORMAT": "json"})
    try:
        raise ValueError("前台")
    except ValueError:
        OURS.exception("room %s", "前台")
    assert stream.getvalue().count("\n") == 1
    event = json.loads(stream.getvalue())
    assert event["level"] == "ERROR"
    assert event["logger"] == "heartbeat_stream.some.part"
    assert event["message"] == "room 前台"
    assert "ValueError: 前台" in event["exception"]
    assert event["time"].endswith("Z")


def test_what_goes_over_the_wire_is_not_written_down() -> None:
    stream = log_of({"HEARTBEAT_LOG_LEVEL": "DEBUG"})
    wire = logging.getLogger("aiokafka.conn")
    wire.debug("Request %s", "SaslAuthenticateRequest(token)")
    wire.info("Authenticated via %s", "OAUTHBEARER")
    assert [line.split(": ", 1)[1] for line in stream.getvalue().splitlines()] == [
        "Authenticated via OAUTHBEARER"
    ]


@pytest.mark.parametrize(
    ("level", "quiet", "heard"),
    [
        (None, False, ["ours INFO", "ours WARNING", "theirs WARNING"]),
        ("ERROR", False, []),
        ("WARNING", False, ["ours WARNING", "theirs WARNING"]),
        ("DEBUG", False, ["ours DEBUG", "ours INFO", "ours WARNING", "theirs DEBUG",
                          "theirs INFO", "theirs WARNING"]),
        (None, True, ["ours WARNING"]),
        ("INFO", True, ["ours INFO", "ours WARNING"]),
        ("DEBUG", True, ["ours DEBUG", "ours INFO", "ours WARNING", "theirs DEBUG",
                         "theirs INFO", "theirs WARNING"]),
    ],
)  # fmt: skip
def test_who_is_heard_from_which_level(level: str | None, quiet: bool, heard: list[str]) -> None:
    stream = log_of({"HEARTBEAT_LOG_LEVEL": level} if level else {}, quiet=quiet)
    for who, logger in (("ours", OURS), ("theirs", THEIRS)):
        for name in ("DEBUG", "INFO", "WARNING"):
            logger.log(logging.getLevelNamesMapping()[name], f"{who} {name}")
    assert [line.split(": ", 1)[1] for line in stream.getvalue().splitlines()] == heard


@pytest.mark.parametrize("form", ["human", "json"])
def test_no_password_comes_through(form: str) -> None:
    stream = log_of(
        {
            "HEARTBEAT_LOG_FORMAT": form,
            "HEARTBEAT_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
            "HEARTBEAT_KAFKA_USERNAME": "reader",
            "HEARTBEAT_KAFKA_PASSWORD": 'hunter"2',
            "HEARTBEAT_DATABASE_URL": "postgresql://app:s%20cret@db/x",
        }
    )
    try:
        raise ConnectionError('the server did not like hunter"2')
    except ConnectionError:
        OURS.exception("cannot log in with %s", {"password": "s cret", "escaped": "s%20cret"})
    THEIRS.warning("no answer from amqp://somebody:else@host/x")
    text = stream.getvalue()
    for secret in ('hunter"2', r"hunter\"2", "s cret", "s%20cret", "else@"):
        assert secret not in text
    assert "amqp://somebody:***@host/x" in text
    assert text.count("***") >= 4


def test_what_a_library_repeats_is_said_once_in_a_while() -> None:
    now = 0.0
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.addFilter(RepeatFilter(10.0, lambda: now))
    logger = logging.Logger("aiokafka.client")
    logger.addHandler(handler)
    for second in range(25):
        now = float(second)
        logger.error("Unable to connect to node %s", second)
        logger.error("another kind %s", second) if second == 3 else None
    assert stream.getvalue().splitlines() == [
        "Unable to connect to node 0",
        "another kind 3",
        "Unable to connect to node 10 (9 more like this since the last line)",
        "Unable to connect to node 20 (9 more like this since the last line)",
    ]


def test_our_own_lines_are_not_held_back() -> None:
    stream = log_of({})
    for _ in range(3):
        OURS.warning("again")
        THEIRS.warning("again")
    assert [line.split()[2] for line in stream.getvalue().splitlines()].count("some.part:") == 3
    assert stream.getvalue().count("aiokafka.client: again") == 1


def test_setting_up_again_replaces_what_was_there() -> None:
    before = log_of({})
    after = log_of({})
    OURS.info("once")
    assert (before.getvalue().count("once"), after.getvalue().count("once")) == (0, 1)


def test_a_service_that_is_derived_from_a_librarys_is_not_heard_starting() -> None:
    class Derived(mode.Service):
        logger = OURS

    async def start_and_stop() -> None:
        async with Derived():
            OURS.info("our own word")

    stream = log_of({})
    asyncio.run(start_and_stop())
    assert [line.split(": ", 1)[1] for line in stream.getvalue().splitlines()] == ["our own word"]
    stream = log_of({"HEARTBEAT_LOG_LEVEL": "DEBUG"})
    asyncio.run(start_and_stop())
    assert "Starting" in stream.getvalue()


def test_what_a_broker_refuses_after_the_end_has_no_traceback() -> None:
    """A commit under way while its topic is deleted: aiokafka says so, and nobody waits for it."""

    async def leave_failing(error: Exception) -> None:
        async def fail() -> None:
            raise error

        task = asyncio.create_task(fail())
        await asyncio.wait([task])

    stream = log_of({})
    asyncio.run(leave_failing(UnknownTopicOrPartitionError()))
    assert stream.getvalue() == ""
    asyncio.run(leave_failing(ValueError("a defect")))
    assert "ValueError: a defect" in stream.getvalue()
