"""What all tests share: an environment without the developer's settings, and embedded servers."""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings as hypothesis_settings

from heartbeat_stream.local.stack import EmbeddedStack

pytest_plugins = [
    "tests.support.brokers",
    "tests.support.own_kafka",
    "tests.support.secure_kafka",
    "tests.support.secure_postgres",
]

# A machine that is busy with other tests is no failure.
hypothesis_settings.register_profile("default", deadline=None)
hypothesis_settings.load_profile("default")


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("HEARTBEAT_") and not name.startswith("HEARTBEAT_TEST_"):
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """A worker or a command within the tests' process sets logging up for itself alone."""
    root, ours = logging.getLogger(), logging.getLogger("heartbeat_stream")
    levels, handlers = (root.level, ours.level), root.handlers[:]
    yield
    logging.disable(logging.NOTSET)
    root.setLevel(levels[0])
    ours.setLevel(levels[1])
    for handler in set(handlers) - set(root.handlers):
        root.addHandler(handler)
    for logger in logging.root.manager.loggerDict.values():
        if isinstance(logger, logging.Logger):
            logger.disabled = False
            logger.propagate = True


@pytest.fixture(scope="session")
def stack() -> Iterator[EmbeddedStack]:
    """The embedded broker and PostgreSQL, one of each for all tests: use names of your own."""
    with EmbeddedStack() as stack:
        yield stack


@pytest.fixture
def on_stack(stack: EmbeddedStack, tmp_path: Path) -> dict[str, str]:
    """A worker's variables on the stack, with topics, table and directory for this test alone."""
    name = f"t{uuid.uuid4().hex[:12]}"
    return {
        **stack.environment,
        "HEARTBEAT_APP_ID": name,
        "HEARTBEAT_TOPIC": f"{name}.heartbeat",
        "HEARTBEAT_DEAD_LETTER_TOPIC": f"{name}.dead-letter",
        "HEARTBEAT_TABLE": name,
        "HEARTBEAT_DATA_DIR": str(tmp_path / "data"),
    }
