"""The message filter on a real broker: what is printed, where, and in which order."""

from __future__ import annotations

import shutil
from collections import defaultdict

from heartbeat_stream.core.heartbeat import Heartbeat
from heartbeat_stream.sinks.message_table import text_ddl
from heartbeat_stream.sinks.table import Table
from tests.support.oracle import Oracle, now_ms
from tests.support.streams import (
    Sent,
    headers_of,
    no_lag_of_jobs,
    prepare_jobs,
    send,
    source,
    written,
)
from tests.support.world import World


async def test_a_text_is_printed_unless_it_was_printed_within_the_window(world: World) -> None:
    await prepare_jobs(world, "messages", messages_sink="topic", messages_window_ms=10_000)
    start = now_ms() - 100_000
    topic = source(world, "messages")
    sent = [
        Sent(b"Hello", start),
        Sent(b"Hello", start + 5_000),
        Sent("再见".encode(), start + 6_000),
        Sent(b"Hello", start + 9_999),
        Sent(b"Hello", start + 10_000),
        Sent(b"Hello", start + 15_000),
        Sent(None, start + 15_000, key=b"k"),
        Sent(b"\xff\xfe", start + 15_000),
        Sent(b"Hello", start + 20_000),
    ]
    await send(world, topic, [one._replace(partition=0) for one in sent])
    worker = await world.start_worker().ready()
    await no_lag_of_jobs(world)
    printed = await written(world, world.settings.messages_output_topic)
    by_text = defaultdict(list)
    for record in printed:
        by_text[record.value.decode()].append((record.timestamp - start, headers_of(record)))
    assert [at for at, _ in by_text["Hello"]] == [0, 10_000, 20_000]
    assert [at for at, _ in by_text["再见"]] == [6_000]
    assert by_text["再见"][0][1] == {
        "source-topic": topic,
        "source-partition": "0",
        "source-offset": "2",
    }
    assert len(printed) == 4
    (letter,) = await world.dead_letters()
    assert letter.value == b"\xff\xfe"
    assert headers_of(letter)["reason"] == "not-utf8"
    assert headers_of(letter)["source-offset"] == "7"
    await worker.stopped()


async def test_seen_is_never_durable_before_the_print(world: World) -> None:
    """The file cannot be written, the worker is killed, the texts are delivered again: once each,
    and not never."""
    target = world.directory / "printed" / "messages.log"
    (world.directory / "printed").write_text("in the way")
    await prepare_jobs(
        world, "messages", messages_sink="file", messages_file=target, checkpoint_ms=200
    )
    texts = [f"text {number}".encode() for number in range(200)]
    await send(world, source(world, "messages"), [Sent(text, now_ms()) for text in texts * 2])
    worker = await world.start_worker().ready()
    await worker.until_metric("heartbeat_judged_total", 800)

    async def says_why() -> bool:
        return b'print_error":"cannot write to' in (await worker.get("/health/ready"))[1]

    await worker.until(says_why, what="what keeps it from printing")
    await worker.kill()
    (world.directory / "printed").unlink()
    worker = await world.start_worker().ready()
    await no_lag_of_jobs(world)
    assert sorted(target.read_bytes().splitlines()) == sorted(texts)
    await worker.stopped()


async def test_standard_output_has_exactly_the_text(world: World) -> None:
    await prepare_jobs(world, "messages")
    texts = ["Hello", "再见", "two\nlines", "", ' {"a": 1} ']
    topic = source(world, "messages")
    await send(world, topic, [Sent(text.encode(), now_ms(), partition=0) for text in texts * 2])
    worker = await world.start_worker().ready()
    await no_lag_of_jobs(world)
    await worker.stopped()
    for text in texts:
        assert worker.log_text().count(f"{text}\n") >= 1
    assert worker.log_text().count("再见\n") == 1
    assert worker.log_text().count("two\nlines\n") == 1


async def test_when_a_window_ends_a_line_says_how_often_it_was_suppressed(world: World) -> None:
    target = world.directory / "messages.log"
    await prepare_jobs(
        world,
        "messages",
        messages_sink="file",
        messages_file=target,
        messages_window_ms=2_000,
        messages_count_suppressed=True,
    )
    topic = source(world, "messages")
    old = now_ms() - 100_000
    await send(
        world,
        topic,
        [
            Sent(b"a", old, partition=0),
            Sent(b"a", old + 1, partition=0),
            Sent(b"a", old + 1_999, partition=0),
            Sent(b"a", old + 2_000, partition=0),
            Sent(b"b", now_ms(), partition=0),
            Sent(b"b", now_ms() + 1, partition=0),
        ],
    )
    worker = await world.start_worker().ready()

    async def told() -> bool:
        return target.exists() and b"once: b" in target.read_bytes()

    await worker.until(told, what="the window of b ends by the clock alone")
    lines = target.read_bytes().splitlines()
    assert [line for line in lines if line.endswith(b"a")] == [b"a", b"suppressed 2 times: a", b"a"]
    assert [line for line in lines if line.endswith(b"b")] == [b"b", b"suppressed once: b"]
    await worker.stopped()
    # And that it was told is known to whoever takes over, from the changelog alone.
    shutil.rmtree(world.settings.data_dir)
    worker = await world.start_worker().ready()
    await worker.until_metric("heartbeat_checkpoints_total", 3)
    assert target.read_bytes().splitlines() == lines
    await worker.stopped()


async def test_texts_in_the_database_once_each(world: World) -> None:
    """By where they stood: a redelivery after a kill adds no row, and what a table cannot hold is
    a dead letter."""
    table = f"{world.settings.app_id}_texts"
    await prepare_jobs(
        world,
        "messages",
        messages_sink="table",
        messages_table=table,
        messages_count_suppressed=True,
        messages_window_ms=1_000,
        checkpoint_ms=600_000,
    )
    topic = source(world, "messages")
    texts = ["再见", "", *(f"text {number}" for number in range(300))]
    at = now_ms() - 50_000
    sent = [Sent(text.encode(), at, partition=0) for text in texts]
    sent += [Sent(b"no \x00 please", at, partition=0), Sent(texts[0].encode(), at + 1, partition=0)]
    await send(world, topic, sent)
    query = f'SELECT topic, "offset", at_ms, text FROM {table} ORDER BY topic <> $1, 2'
    async with world.table.connect() as connection:
        await connection.execute(text_ddl(Table.parse(table)))

        async def rows() -> list[tuple[object, ...]]:
            return [tuple(row) for row in await connection.fetch(query, topic)]

        async def are_all_there() -> bool:
            return len(await rows()) == len(texts) + 1

        worker = await world.start_worker().ready()
        await worker.until(are_all_there, what="all rows, and what is told of the repeated text")
        found = await rows()
        await worker.kill()  # nothing of this was checkpointed
        worker = await world.start_worker().ready()
        # All are read again, and judged: as they were forwarded before, and once more now.
        again = f'heartbeat_judged_total{{outcome="repeated",worker_job="messages"}} {len(sent)}'

        async def are_known() -> bool:
            return again in (await worker.get("/metrics"))[1].decode()

        await worker.until(are_known, what="what was forwarded once more is known")
        await worker.stopped()
        assert await rows() == found
    assert found[:-1] == [(topic, place, at, text) for place, text in enumerate(texts)]
    assert found[-1][2:] == (at, "suppressed once: 再见")
    letters = await world.dead_letters()
    assert {(one.value, headers_of(one)["reason"]) for one in letters} == {
        (b"no \x00 please", "row-refused")
    }


async def test_all_jobs_in_one_worker(world: World) -> None:
    await prepare_jobs(world, "heartbeats,market,messages", messages_sink="topic")
    worker = await world.start_worker().ready()
    oracle = Oracle()
    await world.send([Heartbeat(7, f"{n}", now_ms()) for n in range(50)], oracle=oracle)
    topic = source(world, "messages")
    await send(
        world, topic, [Sent(b"text %d" % (n % 50), now_ms(), partition=0) for n in range(99)]
    )
    await oracle.matches(world.table)
    await no_lag_of_jobs(world)
    assert len(await written(world, world.settings.messages_output_topic)) == 50
    figures = await worker.metrics()
    assert figures["heartbeat_rows_written_total"] == 50
    assert figures["heartbeat_partitions_owned"] == 3 * world.settings.partitions
    await worker.stopped()


async def test_without_the_heartbeats_no_database_is_needed(world: World) -> None:
    await prepare_jobs(world, "market,messages", messages_sink="topic")
    world.set(database_url="postgresql://nobody@127.0.0.1:1/none")
    worker = await world.start_worker().ready()
    assert "127.0.0.1:1" not in worker.log_text()
    await worker.stopped()
