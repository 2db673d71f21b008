"""What the log says of rows that the database refuses, and of a database that was away."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

from heartbeat_stream.core.cooldown import Schedule
from heartbeat_stream.core.heartbeat import Heartbeat, room_key
from heartbeat_stream.core.reasons import Reason, Rejected
from heartbeat_stream.core.room import Room
from heartbeat_stream.jobs.draining import Drain
from heartbeat_stream.sinks.postgres import Refused, SinkUnavailable

START = 1_700_000_000_000
WINDOW, COOLDOWN = 1_000, 30_000
DETAIL = "23514: violates check constraint"


class Place:
    """A drain with a clock that is moved by hand, and a database that answers what it is told."""

    def __init__(self) -> None:
        self.now = START
        self.answers: list[list[Refused] | Exception] = []
        self.refused: list[Rejected] = []
        self.schedule = Schedule(WINDOW, COOLDOWN, 1_000)
        self.drain = Drain(
            self.schedule,
            self,
            batch_max=100,
            batches_at_once=1,
            now_ms=lambda: self.now,
            refuse=self.refuse,
            settled=lambda rooms: None,
        )

    async def upsert(self, rows: Sequence[Heartbeat]) -> list[Refused]:
        answer = self.answers.pop(0) if self.answers else []
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def refuse(
        self, room: Room, row: Heartbeat, source: tuple[int, int], why: Rejected
    ) -> None:
        self.refused.append(why)

    def take_in(self, *names: str) -> None:
        """These rooms have a heartbeat, and are due after the window."""
        for name in names:
            heartbeat = Heartbeat(7, name, self.now, "secret device")
            room = Room.first(heartbeat, room_key(7, name), 0, 0, 0, self.now)
            self.schedule.note_newer(room, self.now)

    async def write(self, after_ms: int = WINDOW) -> None:
        """Let time pass, write what is due, and wait for it."""
        self.now += after_ms
        self.drain.start_due()
        await self.drain.quiesce(5.0)


async def test_a_refused_row_is_a_line_without_its_payload(
    caplog: pytest.LogCaptureFixture,
) -> None:
    place = Place()
    place.take_in("101", "102", "103")
    place.answers = [[Refused(index, Reason.ROW_REFUSED, DETAIL) for index in (0, 2)]]
    with caplog.at_level(logging.WARNING):
        await place.write()
    assert len(place.refused) == place.drain.rows_refused == 2
    (line,) = caplog.messages  # the second one is held back
    assert "hotel 7" in line
    assert DETAIL in line
    assert "until the next heartbeat" in line
    assert "secret device" not in line


async def test_the_end_of_an_outage_is_a_line(caplog: pytest.LogCaptureFixture) -> None:
    place = Place()
    away = SinkUnavailable("connection", "refused")
    place.take_in("101")
    place.answers = [away, away]
    with caplog.at_level(logging.INFO):
        await place.write()
        await place.write(2_000)
        assert "takes rows again" not in caplog.text
        await place.write(2_000)
        assert caplog.messages[-1] == "the database takes rows again after 4.0 s"
        # Nothing was said of this one, which came so soon after: its end isn't either.
        place.take_in("102")
        place.answers = [away]
        await place.write()
        await place.write()
    assert place.drain.rows_written == 2
    assert len(caplog.messages) == 2
