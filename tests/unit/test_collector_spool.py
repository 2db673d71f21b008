"""The spool: in order, bounded, and whole after a kill at any byte."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heartbeat_stream.collector.spool import Spool, SpoolFull

MIB = 1024 * 1024


async def drained(spool: Spool) -> list[bytes]:
    """Everything that is in it; it is empty then."""
    found = []
    while (entry := await spool.next()) is not None:
        found.append(entry.payload)
        await spool.done(entry)
    return found


def sizes(directory: Path) -> list[int]:
    """Of the segments on disk, in bytes."""
    return [path.stat().st_size for path in directory.glob("*.spool")]


async def filled(directory: Path, payloads: list[bytes], *, max_bytes: int = MIB) -> None:
    spool = Spool(directory, max_bytes)
    for payload in payloads:
        await spool.append(payload)
    await spool.close()


async def test_what_goes_in_comes_out_in_order(tmp_path: Path) -> None:
    spool = Spool(tmp_path, MIB)
    payloads = [b"%d" % number * 50 for number in range(2_000)]
    await asyncio.gather(*(spool.append(payload) for payload in payloads))
    assert spool.size > sum(map(len, payloads))
    assert await drained(spool) == payloads
    assert spool.size == 0
    await spool.append(b"again")
    assert await drained(spool) == [b"again"]
    await spool.close()


async def test_an_entry_comes_again_until_it_is_dealt_with(tmp_path: Path) -> None:
    await filled(tmp_path, [b"one", b"two"])
    spool = Spool(tmp_path, MIB)
    first = await spool.next()
    assert first is not None
    assert await spool.next() == first
    await spool.close()
    spool = Spool(tmp_path, MIB)
    assert await spool.next() == first
    await spool.done(first)
    await spool.close()
    spool = Spool(tmp_path, MIB)
    assert await drained(spool) == [b"two"]
    await spool.close()


async def test_it_is_bounded_and_takes_more_once_it_is_drained(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 64 * 1024)
    kept = 0
    while not spool.full and kept < 60:
        await spool.append(b"x" * 1_000)
        kept += 1
    with pytest.raises(SpoolFull):
        await asyncio.gather(*(spool.append(b"x" * 1_000) for _ in range(10)))
    assert sum(sizes(tmp_path)) <= 64 * 1024
    kept = sum(size // 1_008 for size in sizes(tmp_path))
    assert len(await drained(spool)) >= kept
    await spool.append(b"x" * 1_000)
    assert len(sizes(tmp_path)) <= 2, "what was read goes"
    await spool.close()


async def test_a_start_after_all_was_drained_keeps_what_comes_then(tmp_path: Path) -> None:
    for round_ in range(5):
        spool = Spool(tmp_path, MIB)
        await spool.append(b"%d" % round_)
        assert await drained(spool) == [b"%d" % round_]
        await spool.close()
    await filled(tmp_path, [b"kept"])
    spool = Spool(tmp_path, MIB)
    assert await drained(spool) == [b"kept"]
    await spool.close()


async def test_a_lost_or_broken_position_loses_nothing(tmp_path: Path) -> None:
    await filled(tmp_path, [b"one", b"two"])
    for text in ("", "nonsense", "99"):
        (tmp_path / "position").write_text(text)
        spool = Spool(tmp_path, MIB)
        entry = await spool.next()
        assert entry is not None
        assert entry.payload == b"one"
        await spool.close()


@given(cut=st.integers(0, 400), garbage=st.binary(max_size=30), sizes=st.lists(st.integers(1, 60)))
@settings(max_examples=60)
def test_a_torn_tail_takes_nothing_else_along(
    tmp_path_factory: pytest.TempPathFactory, cut: int, garbage: bytes, sizes: list[int]
) -> None:
    """Cut anywhere, with anything behind it: all entries before the cut are there, and those that
    come afterwards."""
    tmp_path = tmp_path_factory.mktemp("spool")
    payloads = [bytes([65 + number % 26]) * size for number, size in enumerate(sizes)]

    async def run() -> None:
        await filled(tmp_path, payloads)
        whole = 0
        for segment in tmp_path.glob("*.spool"):
            data = segment.read_bytes()[:cut]
            segment.write_bytes(data + garbage)
            end = 0
            for payload in payloads:
                end += 8 + len(payload)
                whole += end <= len(data)
        spool = Spool(tmp_path, MIB)
        await spool.append(b"later")
        found = await drained(spool)
        assert found[:whole] == payloads[:whole]
        assert found[-1] == b"later"
        assert len(found) <= len(payloads) + 1
        await spool.close()

    asyncio.run(run())


async def test_a_disk_that_refuses_is_said_and_spoils_nothing(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", MIB)
    await spool.append(b"one")
    written = spool._write

    def refuses(entries: list[bytes]) -> tuple[int, int]:
        raise OSError(28, "No space left on device")

    spool._write = refuses  # type: ignore[method-assign]
    with pytest.raises(SpoolFull, match="No space left"):
        await spool.append(b"two")
    spool._write = written  # type: ignore[method-assign]
    await spool.append(b"three")
    assert await drained(spool) == [b"one", b"three"]
    await spool.close()
