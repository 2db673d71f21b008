"""Seen events in a table of PostgreSQL."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator

import pytest

from heartbeat_stream.collector.seen.postgres import PostgresStore
from heartbeat_stream.collector.seen.store import Answer, StoreFailed
from heartbeat_stream.local.stack import EmbeddedStack
from heartbeat_stream.sinks.postgres_settings import PostgresSettings
from tests.support.seen_stores import (
    CLAIM_MS,
    keeps_to_the_protocol,
    one_claim_wins,
    seen_expires,
)

HOUR_MS = 3_600_000


class Stores:
    """Stores on one table."""

    def __init__(self, url: str) -> None:
        self._settings = PostgresSettings(url)
        self._table = f"seen_{uuid.uuid4().hex[:12]}"
        self._made: list[PostgresStore] = []

    def make(
        self, claim_ms: int = HOUR_MS, window_ms: int = HOUR_MS, most: int = 10**6
    ) -> PostgresStore:
        store = PostgresStore(
            self._settings, self._table, claim_ms=claim_ms, window_ms=window_ms, most=most
        )
        self._made.append(store)
        return store

    async def stop(self) -> None:
        for store in self._made:
            await store.stop()


@pytest.fixture
async def stores(stack: EmbeddedStack) -> AsyncIterator[Stores]:
    stores = Stores(stack.postgres.url)
    yield stores
    await stores.stop()


async def test_the_protocol(stores: Stores) -> None:
    await keeps_to_the_protocol(stores.make())


async def test_several_collectors_create_the_table_and_claim_at_once(stores: Stores) -> None:
    await one_claim_wins([stores.make(), stores.make()])


async def test_collectors_that_start_together_all_have_their_table(stores: Stores) -> None:
    started = [stores.make() for _ in range(8)]
    await asyncio.gather(*(store.start() for store in started))
    await started[0].confirm([b"seen"])
    for store in started:
        assert await store.claim(dict.fromkeys([b"seen"], b"one")) == [Answer.SEEN]


async def test_claims_and_what_was_seen_expire(stores: Stores) -> None:
    await seen_expires(stores.make)


async def test_it_cleans_itself_by_age_and_by_number_in_steps(stores: Stores) -> None:
    old, store = stores.make(window_ms=1), stores.make(most=1_500)
    await old.confirm([b"old-%d" % number for number in range(1_700)])
    await store.confirm([b"%d" % number for number in range(3_000)])
    await store.confirm([b"%d" % number for number in range(100)])  # these are active again
    steps = []
    while gone := await store.clean():
        steps.append(gone)
    assert max(steps) <= 2_000, "never all at once"
    assert sum(steps) == 1_700 + 1_500
    answers = await store.claim(dict.fromkeys([b"%d" % number for number in range(3_000)], b"one"))
    assert answers.count(Answer.SEEN) == 1_500
    assert answers[:100] == [Answer.SEEN] * 100


async def test_a_database_that_is_away_is_said_without_its_password() -> None:
    store = PostgresStore(
        PostgresSettings("postgresql://me:hushhush@127.0.0.1:1/none"),
        "seen",
        claim_ms=CLAIM_MS,
        window_ms=CLAIM_MS,
        most=9,
    )
    with pytest.raises(StoreFailed) as caught:
        await store.claim(dict.fromkeys([b"a"], b"one"))
    assert "hushhush" not in str(caught.value)
