"""Between clients and a broker: holds back requests of a kind, or has them answered with an error.

It reads of Kafka's protocol what that takes: frames, the header of a request, and where the error
codes stand in the answers of a group's coordinator, in the versions that aiokafka 0.14 speaks.
Metadata is read, and written again, by aiokafka's own classes.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from io import BytesIO

from aiokafka.errors import UnknownTopicOrPartitionError
from aiokafka.protocol import metadata as metadata_protocol

from heartbeat_stream.local.process import LOOPBACK

__all__ = [
    "COMMIT",
    "FETCH",
    "FETCH_OFFSETS",
    "HEARTBEAT",
    "JOIN",
    "METADATA",
    "PRODUCE",
    "SYNC",
    "KafkaProxy",
    "kafka_proxy",
]

PRODUCE, FETCH, METADATA, COMMIT, FETCH_OFFSETS, JOIN, HEARTBEAT, SYNC = 0, 1, 3, 8, 9, 11, 12, 14

_LENGTH = struct.Struct(">i")
_REQUEST = struct.Struct(">hhi")  # kind, version, correlation id
_SHORT = struct.Struct(">h")
_HEADER = 4  # an answer begins with its correlation id


class KafkaProxy:
    """A proxy that lets everything pass until it is told otherwise; made by :func:`kafka_proxy`."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._held: set[int] = set()
        self._errors: dict[int, int] = {}
        self._hidden: set[str] = set()
        self._hidden_from = ""
        self._released = asyncio.Event()
        self.seen: dict[int, int] = {}  #: requests by kind, held ones included
        self.spoilt: dict[int, int] = {}  #: answers by kind that were turned into errors

    def hold(self, *kinds: int) -> None:
        """Let no request of these kinds through, nor what comes behind it on its connection."""
        self._released.clear()
        self._held |= set(kinds)

    def fail(self, *kinds: int, code: int) -> None:
        """Put an error code into each answer to requests of these kinds."""
        self._errors |= dict.fromkeys(kinds, code)

    def hide(self, *topics: str, client: str) -> None:
        """Say to clients whose id begins so that there are no such topics, as a broker does that
        has not heard of them yet."""
        self._hidden, self._hidden_from = set(topics), client

    def behave(self) -> None:
        """Let everything pass again, what was held first."""
        self._held.clear()
        self._errors.clear()
        self._hidden.clear()
        self._released.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of a client."""
        try:
            to_reader, to_writer = await asyncio.open_connection(LOOPBACK, self._target)
        except OSError:
            writer.close()
            return
        asked: dict[int, tuple[int, int, str]] = {}
        ways = [
            asyncio.create_task(self._requests(reader, to_writer, asked)),
            asyncio.create_task(self._answers(to_reader, writer, asked)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.wait(ways)
            to_writer.close()
            writer.close()

    async def _requests(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        asked: dict[int, tuple[int, int, str]],
    ) -> None:
        async for frame in _frames(reader):
            kind, version, correlation = _REQUEST.unpack_from(frame)
            self.seen[kind] = self.seen.get(kind, 0) + 1
            asked[correlation] = kind, version, _client(frame)
            while kind in self._held:
                await self._released.wait()
            _send(writer, frame)

    async def _answers(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        asked: dict[int, tuple[int, int, str]],
    ) -> None:
        async for frame in _frames(reader):
            kind, version, client = asked.pop(_LENGTH.unpack_from(frame)[0], (-1, 0, ""))
            code = self._errors.get(kind)
            if code is not None:
                frame = _spoilt(frame, _PLACES[kind](frame, version), code)
                self.spoilt[kind] = self.spoilt.get(kind, 0) + 1
            elif kind == METADATA and self._hidden and client.startswith(self._hidden_from):
                frame = _without(self._hidden, frame, version)
                self.spoilt[kind] = self.spoilt.get(kind, 0) + 1
            _send(writer, frame)


def _client(frame: bytes) -> str:
    at = _REQUEST.size
    (length,) = _SHORT.unpack_from(frame, at)
    return frame[at + 2 : at + 2 + length].decode() if length > 0 else ""


def _without(topics: set[str], frame: bytes, version: int) -> bytes:
    """The same metadata, of a cluster that does not know these topics."""
    answer = getattr(metadata_protocol, f"MetadataResponse_v{version}").decode(
        BytesIO(frame[_HEADER:])
    )
    answer.topics = [
        (UnknownTopicOrPartitionError.errno, *rest[:-1], []) if rest[0] in topics else (code, *rest)
        for code, *rest in answer.topics
    ]
    return frame[:_HEADER] + bytes(answer.encode())


def _spoilt(frame: bytes, places: list[int], code: int) -> bytes:
    changed = bytearray(frame)
    for place in places:
        _SHORT.pack_into(changed, place, code)
    return bytes(changed)


def _send(writer: asyncio.StreamWriter, frame: bytes) -> None:
    writer.write(_LENGTH.pack(len(frame)) + frame)


async def _frames(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    with contextlib.suppress(asyncio.IncompleteReadError, OSError):
        while True:
            (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
            yield await reader.readexactly(length)


# -- where the error codes stand ------------------------------------------------------------------


def _at_the_top(since: int) -> Callable[[bytes, int], list[int]]:
    """At the start of the body; behind the four bytes of the throttle time from a version on."""

    def places(_: bytes, version: int) -> list[int]:
        return [_HEADER + (4 if version >= since else 0)]

    return places


def _by_partition(skip: Callable[[bytes, int], int], since: int) -> Callable[..., list[int]]:
    """An array of topics, each with an array of partitions; ``skip`` finds the code in one."""

    def places(frame: bytes, version: int) -> list[int]:
        found = []
        at = _HEADER + (4 if version >= since else 0)
        (topics,) = _LENGTH.unpack_from(frame, at)
        at += 4
        for _ in range(topics):
            at += 2 + _SHORT.unpack_from(frame, at)[0]
            (partitions,) = _LENGTH.unpack_from(frame, at)
            at += 4
            for _ in range(partitions):
                at = skip(frame, at)
                found.append(at)
                at += 2
        return found

    return places


def _after_partition(_: bytes, at: int) -> int:
    return at + 4


def _after_metadata(frame: bytes, at: int) -> int:
    at += 4 + 8  # partition, offset
    return int(at + 2 + max(0, _SHORT.unpack_from(frame, at)[0]))


_PLACES: dict[int, Callable[[bytes, int], list[int]]] = {
    HEARTBEAT: _at_the_top(1),
    JOIN: _at_the_top(2),
    SYNC: _at_the_top(1),
    COMMIT: _by_partition(_after_partition, 3),
    FETCH_OFFSETS: _by_partition(_after_metadata, 3),
}


@asynccontextmanager
async def kafka_proxy(port: int, target: int) -> AsyncIterator[KafkaProxy]:
    """A proxy on ``port`` while the block runs, for the broker that listens on ``target``."""
    proxy = KafkaProxy(target)
    server = await asyncio.start_server(proxy.serve, LOOPBACK, port)
    try:
        yield proxy
    finally:
        proxy.behave()
        server.close()
