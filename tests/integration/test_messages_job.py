"""The message filter on a real broker: what is printed, where, and in which order."""

from __future__ import annotations

from collections import defaultdict

from tests.support.oracle import now_ms
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
