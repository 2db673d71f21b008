"""`clean` on a real database: what it changes, what it leaves, and what gets in its way."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from heartbeat_stream.local.stack import EmbeddedStack
from heartbeat_stream.recovery.cleaning import EventCleaning
from heartbeat_stream.recovery.errors import PartlyDone, RecoveryError
from heartbeat_stream.recovery.event_groups import Scope
from tests.support.program import run_program, start_program
from tests.support.stored_events import Place, StoredEvents, row
from tests.support.wait import wait_until, wait_until_async

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
#: Midnight, as days of partitions begin.
START_MS = 1_780_012_800_000
END_MS = START_MS + DAY_MS
SHOP = "shop"


@pytest.fixture(scope="module")
def events(stack: EmbeddedStack) -> StoredEvents:
    """One table for all: a project of its own for each."""
    events = StoredEvents(stack.postgres.url)
    asyncio.run(events.create())
    return events


@pytest.fixture
def own(stack: EmbeddedStack) -> StoredEvents:
    """A table of a test's own."""
    events = StoredEvents(stack.postgres.url)
    asyncio.run(events.create())
    return events


def cleaning(
    events: StoredEvents,
    project: str = SHOP,
    *,
    delete: bool = False,
    batch: int = 500,
    signup: bool = False,
) -> EventCleaning:
    scope = Scope(events.table, project, START_MS, END_MS, HOUR_MS, signup)
    return EventCleaning(events.settings, scope, delete=delete, batch=batch)


def quiet(text: str) -> None:
    """Progress that nobody sees."""


async def clean(operation: EventCleaning) -> tuple[Sequence[str], Sequence[str]]:
    """What it says that it will do, and has done."""
    return await operation.plan(quiet), await operation.run(quiet)


def counted(lines: Sequence[str]) -> list[int]:
    """Rows freed of a mark, and rows marked or deleted: the first numbers of the last two lines."""
    return [int(re.split(r"\s", line)[0].replace(",", "")) for line in lines[-2:]]


def document(number: int, flush_time: int | None = None, **fields: Any) -> bytes:
    """An event of its own for each number."""
    event = {
        "type": "track",
        "distinct_id": f"user-{number % 7}",
        "_track_id": 1_000 + number,
        "time": 1_780_000_000_000 + number,
        "_flush_time": flush_time,
        **fields,
    }
    return json.dumps(event).encode()


# -- against a naive model -------------------------------------------------------------------------


class Given(NamedTuple):
    """A row before, in fields with few values, so that copies are frequent."""

    type: str
    distinct_id: str
    track_id: Any
    time: Any
    flush_time: int | None
    remark: str | None
    at_ms: int
    partition: int

    @property
    def key(self) -> tuple[str, str, int] | None:
        """What the columns tell."""
        if self.track_id is None or self.time is None:
            return None
        return self.distinct_id, str(self.track_id), int(float(self.time))

    def identity(self, *, signup: bool) -> tuple[str, str, float] | None:
        judged = self.type == "track" or (signup and self.type == "track_signup")
        if not judged or not self.distinct_id or self.track_id in (None, 0) or self.time is None:
            return None
        return self.distinct_id, str(self.track_id), float(self.time)

    @property
    def marked(self) -> bool:
        return (self.remark or "").startswith("du-")

    def document(self) -> bytes:
        return document(
            0,
            self.flush_time,
            type=self.type,
            distinct_id=self.distinct_id,
            _track_id=self.track_id,
            time=self.time,
            project="of the document",
            remark="of the document",
        )


given_rows = st.lists(
    st.builds(
        Given,
        st.sampled_from(["track", "track", "track", "track_signup", "profile_set"]),
        st.sampled_from(["a", "a", "b", ""]),
        st.sampled_from([7, "7", 7, 0, None]),
        st.sampled_from([1000, "1000", 1000.0, 1000.5, None]),
        st.sampled_from([None, 1, 2]),
        st.sampled_from([None, None, "", "x", "du-", "du-x", "du-du-x"]),
        st.sampled_from(
            [
                START_MS + offset
                for offset in (-2 * DAY_MS, -HOUR_MS - 1, -HOUR_MS, -1, 0, 5, DAY_MS // 2)
            ]
            + [END_MS + offset for offset in (-1, 0, HOUR_MS - 1, HOUR_MS, DAY_MS)]
        ),
        st.integers(0, 2),
    ),
    max_size=14,
)

Expected = dict[Place, str | None]


def modelled(rows: dict[Place, Given], *, delete: bool, signup: bool) -> tuple[Expected, list[int]]:
    """What is there afterwards, and how many rows are freed of a mark, and marked or deleted."""
    groups: dict[Any, list[Place]] = defaultdict(list)
    for place, one in rows.items():
        identity = one.identity(signup=signup)
        if identity is not None and _is_looked_at(one, rows.values(), signup=signup):
            groups[identity].append(place)
    after: Expected = {place: one.remark for place, one in rows.items()}
    freed = changed = 0
    for places in groups.values():

        def order(place: Place) -> tuple[float, Place]:
            flush_time = rows[place].flush_time
            return (9e99 if flush_time is None else flush_time), place

        kept, *others = sorted(places, key=order)
        if rows[kept].marked:
            after[kept] = re.sub("^(du-)+", "", rows[kept].remark or "") or None
            freed += 1
        for place in others:
            changed += delete or not rows[place].marked
            if delete:
                del after[place]
            elif not rows[place].marked:
                after[place] = f"du-{rows[place].remark or ''}"
    return after, [freed, changed]


def _is_looked_at(one: Given, rows: Any, *, signup: bool) -> bool:
    types = ("track", "track_signup") if signup else ("track",)
    alike = [other for other in rows if other.key == one.key and other.type in types]
    seen = [other for other in alike if START_MS - HOUR_MS <= other.at_ms < END_MS + HOUR_MS]
    if not any(START_MS <= other.at_ms < END_MS for other in seen):
        return False
    return len(seen) > 1 or any(other.marked for other in seen)


@pytest.fixture(scope="module")
def projects() -> Iterator[str]:
    return (f"project-{number}" for number in count())


def one(at_ms: int, remark: str | None = None, flush_time: int | None = None) -> Given:
    """A copy of one event, received then."""
    return Given("track", "a", 7, 1000, flush_time, remark, at_ms, 0)


def at(rows: list[Given], *, delete: bool = False) -> Any:
    """An example that is always tried."""
    return example(rows=rows, delete=delete, signup=False, batch=3)


@at([one(START_MS, "du-")])
@at([one(START_MS - 1, "du-x")])
@at([one(END_MS, "du-x")])
@at([one(END_MS - 1), one(END_MS + HOUR_MS - 1)])
@at([one(END_MS - 1), one(END_MS + HOUR_MS)])
@at([one(START_MS), one(START_MS - HOUR_MS)])
@at([one(START_MS), one(START_MS - HOUR_MS - 1)])
@at([one(START_MS - HOUR_MS), one(END_MS)])
@at([one(START_MS, "du-"), one(END_MS + DAY_MS, None, 1), one(START_MS - 2 * DAY_MS)], delete=True)
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=given_rows, delete=st.booleans(), signup=st.booleans(), batch=st.sampled_from([1, 3]))
def test_it_does_what_a_naive_model_does(
    events: StoredEvents,
    projects: Iterator[str],
    rows: list[Given],
    delete: bool,
    signup: bool,
    batch: int,
) -> None:
    project = next(projects)
    placed = {(each.partition, offset): each for offset, each in enumerate(rows)}
    before = {place: each.remark for place, each in placed.items()}
    stored = [
        row(each.document(), project, each.at_ms, place, each.remark)
        for place, each in placed.items()
    ]
    wanted, numbers = modelled(placed, delete=delete, signup=signup)

    async def whole() -> None:
        if stored:
            await events.store(stored)
        operation = cleaning(events, project, delete=delete, signup=signup, batch=batch)
        planned = await operation.plan(quiet)
        assert await events.remarks(project) == before
        assert counted(planned) == numbers
        assert counted(await operation.run(quiet)) == numbers
        assert await events.remarks(project) == wanted
        again = cleaning(events, project, delete=delete, signup=signup)
        assert [counted(lines) for lines in await clean(again)] == [[0, 0], [0, 0]]
        assert await events.remarks(project) == wanted

    asyncio.run(whole())


async def test_numbers_are_told_apart_as_they_came(own: StoredEvents) -> None:
    """Also those that JSONB spells in another way, and those that the column cannot hold."""
    spelled = [b"1e3", b"1000", b"1000.00", b'"1000"', b"1000.0000001", b"1e30", b"1e30", b"2e30"]
    documents = [
        b'{"type":"track","distinct_id":"a","_track_id":12345678901234567890123,"time":%b}' % one
        for one in spelled
    ]
    await own.store([row(one, SHOP, START_MS + at, (0, at)) for at, one in enumerate(documents)])
    await clean(cleaning(own))
    remarks = await own.remarks(SHOP)
    assert [at for (_, at), remark in remarks.items() if remark is not None] == [1, 2, 3, 6]


# -- what gets in its way --------------------------------------------------------------------------


async def filled(events: StoredEvents, numbers: int, copies: int = 2) -> set[Place]:
    """Store copies of so many events; where those stand that are to be marked."""
    rows = [
        row(document(number, one), SHOP, START_MS + number, (one, number))
        for number in range(numbers)
        for one in range(copies)
    ]
    await events.store(rows)
    return {(one, number) for number in range(numbers) for one in range(1, copies)}


async def marks(events: StoredEvents) -> set[Place]:
    found = await events.remarks(SHOP)
    return {place for place, remark in found.items() if remark == "du-"}


async def test_a_run_that_was_killed_is_repeated(own: StoredEvents, tmp_path: Path) -> None:
    wanted = await filled(own, 600)
    words = ("--project", SHOP, "--from", "2026-05-29", "--to", "2026-05-30", "--yes")
    with start_program("clean", own.environment, tmp_path, *words, "--batch", "1") as process:

        async def begun() -> bool:
            return len(await marks(own)) > 5

        await wait_until_async(begun, 60, what="some rows are marked")
        process.send_signal(signal.SIGKILL)
        wait_until(lambda: process.poll() is not None, 30, what="it is dead")
    some = await marks(own)
    assert 5 < len(some) < len(wanted)
    assert some < wanted
    done = await asyncio.to_thread(run_program, "clean", own.environment, tmp_path, *words)
    assert done.returncode == 0, done
    assert f"{len(wanted) - len(some):,} rows were marked du-" in done.stdout
    assert await marks(own) == wanted


async def test_two_at_once(own: StoredEvents) -> None:
    wanted = await filled(own, 150)
    runs = [cleaning(own, batch=1) for _ in range(2)]
    for one in runs:
        await one.plan(quiet)
    ended = await asyncio.gather(*(one.run(quiet) for one in runs), return_exceptions=True)
    (refused,) = [one for one in ended if isinstance(one, BaseException)]
    assert isinstance(refused, RecoveryError)
    assert "another clean" in str(refused)
    assert await marks(own) == wanted


async def test_a_remark_that_somebody_else_changes_meanwhile_stays_theirs(
    own: StoredEvents,
) -> None:
    await filled(own, 3)
    operation = cleaning(own)
    await operation.plan(quiet)
    async with own.connect() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(
            f'UPDATE {own.table} SET remark = $1 WHERE partition = 1 AND "offset" = 1', "theirs"
        )
        running = asyncio.create_task(operation.run(quiet))
        await wait_until_async(lambda: _is_blocked(own), 30, what="it waits for the row")
        await transaction.commit()
    with pytest.raises(PartlyDone, match="1 row was changed by somebody else") as raised:
        await running
    assert counted(raised.value.done) == [0, 2]
    assert (await own.remarks(SHOP))[1, 1] == "theirs"
    await clean(cleaning(own))
    assert (await own.remarks(SHOP))[1, 1] == "du-theirs"


async def _is_blocked(events: StoredEvents) -> bool:
    async with events.connect() as connection:
        return bool(
            await connection.fetchval(
                "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                " AND query LIKE '%' || $1 || '%' AND pid <> pg_backend_pid())",
                events.table.name,
            )
        )


async def test_what_is_kept_cannot_go_while_the_others_are_deleted(own: StoredEvents) -> None:
    await filled(own, 1)
    operation = cleaning(own, delete=True)
    await operation.plan(quiet)
    async with own.connect() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(f"DELETE FROM {own.table} WHERE partition = 0")
        running = asyncio.create_task(operation.run(quiet))
        await wait_until_async(lambda: _is_blocked(own), 30, what="it waits for the row")
        await transaction.commit()
    assert counted(await running) == [0, 0]
    assert set(await own.remarks(SHOP)) == {(1, 0)}, "the last one of the event"


async def test_while_a_worker_stores(own: StoredEvents) -> None:
    """Copies come all the time, each flushed earlier than those before it: the worst order."""
    storing = True

    async def store() -> None:
        for copies in range(8):
            rows = [
                row(document(number, -copies), SHOP, START_MS + copies, (copies, number))
                for number in range(100)
            ]
            await own.store(rows)

    async def go_on() -> None:
        while storing:
            await clean(cleaning(own, batch=7))

    cleaner = asyncio.create_task(go_on())
    await store()
    storing = False
    await cleaner
    await clean(cleaning(own))
    remarks = await own.remarks(SHOP)
    assert len(remarks) == 800
    assert remarks == {place: None if place[0] == 7 else "du-" for place in remarks}


# -- as it is typed --------------------------------------------------------------------------------

WORDS = ("--project", SHOP, "--from", "2026-05-29", "--to", "2026-05-30T00:00:00Z")


async def test_on_the_command_line(own: StoredEvents, tmp_path: Path) -> None:
    await own.store(
        [
            row(document(1, 5), SHOP, START_MS, (0, 0)),
            row(document(1, 4), SHOP, START_MS + 1, (0, 1), "du-live"),
            row(document(1, 6), SHOP, END_MS + 1, (0, 2), "live"),
            row(document(2, 5), SHOP, START_MS, (0, 3), "live"),
            row(document(1, 4), "another", START_MS, (0, 4), "du-live"),
        ]
    )
    before = await own.remarks(SHOP)
    dry = await asyncio.to_thread(
        run_program, "clean", own.environment, tmp_path, *WORDS, "--dry-run"
    )
    assert dry.returncode == 0, dry
    assert dry.stdout.splitlines()[1:] == [
        "1 event with copies or a mark, in 3 rows",
        "1 row is freed of a du-, being the first of an event",
        "2 rows are marked du-",
        "nothing was changed: this was --dry-run",
    ]
    assert await own.remarks(SHOP) == before

    unasked = await asyncio.to_thread(run_program, "clean", own.environment, tmp_path, *WORDS)
    assert unasked.returncode == 1
    assert "--yes" in unasked.stderr
    assert await own.remarks(SHOP) == before

    done = await asyncio.to_thread(run_program, "clean", own.environment, tmp_path, *WORDS, "--yes")
    assert done.returncode == 0, done
    assert done.stdout.splitlines()[-2:] == [
        "1 row was freed of a du-, being the first of an event",
        "2 rows were marked du-",
    ]
    assert await own.remarks(SHOP) == {
        (0, 0): "du-",
        (0, 1): "live",
        (0, 2): "du-live",
        (0, 3): "live",
    }
    assert await own.remarks("another") == {(0, 4): "du-live"}

    gone = await asyncio.to_thread(
        run_program, "clean", own.environment, tmp_path, *WORDS, "--yes", "--delete"
    )
    assert gone.stdout.splitlines()[-1] == "2 rows were deleted"
    assert set(await own.remarks(SHOP)) == {(0, 1), (0, 3)}


@pytest.mark.parametrize(
    ("words", "environment", "said"),
    [
        (WORDS, {"HEARTBEAT_TRACKING_TABLE": "nowhere"}, "no table nowhere"),
        ((*WORDS[:3], "2026-05-31", *WORDS[4:]), {}, "--to does not lie behind --from"),
        (WORDS, {"HEARTBEAT_DATABASE_URL": "postgresql://me@127.0.0.1:1/x"}, "start the database"),
    ],
)
def test_what_is_in_its_way_is_one_line(
    events: StoredEvents,
    tmp_path: Path,
    words: Sequence[str],
    environment: dict[str, str],
    said: str,
) -> None:
    done = run_program("clean", {**events.environment, **environment}, tmp_path, *words, "--yes")
    assert done.returncode == 1
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1, done
