"""Local copies that were left behind for so long that tombstones have come and gone since."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiokafka.structs import TopicPartition

from heartbeat_stream.streaming.changelog import ChangelogReader
from heartbeat_stream.streaming.store import PartitionStore, Position, StoreOptions
from tests.support.brokers import on_embedded
from tests.support.kafka_admin import create_topics
from tests.support.world import World

pytestmark = on_embedded

OLD_MS, NOW_MS, TRUSTED_MS = 1_000_000, 10_000_000, 5_000_000


@pytest.fixture
async def changelog(world: World) -> TopicPartition:
    """An old record, and a new one of a key that had left the table in between."""
    tp = TopicPartition(f"{world.topic}-changelog", 0)
    await create_topics(world.bootstrap_servers, {tp.topic: 1})
    async with world.producer() as producer:
        for key, value, at in ((b"7:other", b"1", OLD_MS), (b"7:frozen", b"50", NOW_MS)):
            await producer.send_and_wait(tp.topic, value, key, 0, timestamp_ms=at)
    return tp


def left_behind(path: Path, position: Position) -> PartitionStore:
    """A copy that ends at the old record, and knows what was removed since."""
    store = PartitionStore(path / "copy", StoreOptions(8), "test")
    store.write([(b"7:other", b"1"), (b"7:frozen", b"100")], position)
    return store


async def catch_up(
    world: World, tp: TopicPartition, store: PartitionStore, now_ms: int
) -> dict[bytes, bytes]:
    reader = ChangelogReader(
        {"bootstrap_servers": world.bootstrap_servers},
        trusted_ms=TRUSTED_MS,
        now_ms=lambda: now_ms,
    )
    ends = await reader.catch_up({tp: (store, int)})
    assert ends == {tp: 2}
    assert store.position is not None
    assert store.position.offset == 1
    return dict(store.scan())


async def test_a_stale_copy_is_made_again(
    world: World, changelog: TopicPartition, tmp_path: Path
) -> None:
    store = left_behind(tmp_path, Position(0, OLD_MS))
    found = await catch_up(world, changelog, store, NOW_MS)
    assert found == {b"7:other": b"1", b"7:frozen": b"50"}
    assert not store.news.overtaken
    # Now it is as good as any.
    assert await catch_up(world, changelog, store, NOW_MS + 1) == found
    store.close()


async def test_a_copy_that_is_younger_is_trusted(
    world: World, changelog: TopicPartition, tmp_path: Path
) -> None:
    """Its tombstone, had there been one, would still be there."""
    store = left_behind(tmp_path, Position(0, OLD_MS))
    found = await catch_up(world, changelog, store, OLD_MS + TRUSTED_MS)
    assert found == {b"7:other": b"1", b"7:frozen": b"100"}
    assert store.news.overtaken == {b"7:frozen"}
    store.close()


async def test_an_old_copy_that_has_missed_nothing_is_kept(
    world: World, changelog: TopicPartition, tmp_path: Path
) -> None:
    store = left_behind(tmp_path, Position(1, NOW_MS))
    found = await catch_up(world, changelog, store, NOW_MS + 10 * TRUSTED_MS)
    assert found[b"7:frozen"] == b"100"
    store.close()


async def test_what_nobody_else_has_is_kept_however_old_it_is(
    world: World, changelog: TopicPartition, tmp_path: Path
) -> None:
    """The changelog has been made anew: another record stands where the copy ends."""
    store = left_behind(tmp_path, Position(0, OLD_MS - 1))
    found = await catch_up(world, changelog, store, NOW_MS)
    assert found[b"7:frozen"] == b"100"
    assert store.news.republish
    store.close()
