"""How long a recovery waits for the database: not at all where waiting does not help."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest

from heartbeat_stream.core.heartbeat import Heartbeat
from heartbeat_stream.recovery.rows import upsert_patiently
from heartbeat_stream.sinks.postgres import PostgresSink, Refused, SinkUnavailable

ROWS = [Heartbeat(7, "101", 1_700_000_000_000)]


class Database:
    """Fails as it is told, and takes rows afterwards."""

    def __init__(self, *errors: SinkUnavailable) -> None:
        self._errors = list(errors)
        self.calls = 0

    async def upsert(self, rows: Sequence[Heartbeat]) -> list[Refused]:
        self.calls += 1
        if self._errors:
            raise self._errors.pop(0)
        return []

    @property
    def sink(self) -> PostgresSink:
        return cast("PostgresSink", self)


async def test_a_database_that_comes_back_is_waited_for() -> None:
    database = Database(SinkUnavailable("connection", "refused"))
    assert await upsert_patiently(database.sink, ROWS) == []
    assert database.calls == 2


@pytest.mark.parametrize("kind", ["permission", "undefined-table"])
async def test_a_right_that_is_missing_is_not(kind: str) -> None:
    database = Database(SinkUnavailable(kind, "denied", sqlstate="42501"))
    with pytest.raises(SinkUnavailable, match="denied"):
        await upsert_patiently(database.sink, ROWS)
    assert database.calls == 1
