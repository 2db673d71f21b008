"""Asks a Kafka broker who it is, with plain sockets: it needs no client and no event loop.

One request, Metadata version 2 (the first that names the cluster), about no topic. The cluster id
tells the broker that was started from another one that happens to answer on the same port.
"""

from __future__ import annotations

import socket
import struct
from typing import NamedTuple

METADATA = 3
METADATA_VERSION = 2
CORRELATION_ID = 1


class Cluster(NamedTuple):
    """What a broker says of its cluster."""

    cluster_id: str
    brokers: int


def probe(host: str, port: int, seconds: float = 1.0) -> Cluster | None:
    """The cluster as the broker on `host:port` sees it; None where none answers in time."""
    body = struct.pack(">hhihi", METADATA, METADATA_VERSION, CORRELATION_ID, -1, 0)
    try:
        with socket.create_connection((host, port), timeout=seconds) as connection:
            connection.sendall(struct.pack(">i", len(body)) + body)
            (size,) = struct.unpack(">i", _receive(connection, 4))
            return _parse(_receive(connection, size))
    except (OSError, struct.error, ValueError):
        return None


def _receive(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        part = connection.recv(size - len(received))
        if not part:
            raise ConnectionResetError
        received += part
    return received


def _parse(response: bytes) -> Cluster:
    """Response header version 0, then brokers (id, host, port, rack), then the cluster id."""
    _, brokers = struct.unpack_from(">ii", response)
    position = 8
    for _ in range(brokers):
        _, position = _string(response, position + 4)
        _, position = _string(response, position + 4)
    cluster_id, _ = _string(response, position)
    return Cluster(cluster_id, brokers)


def _string(response: bytes, position: int) -> tuple[str, int]:
    (size,) = struct.unpack_from(">h", response, position)
    start = position + 2
    end = start + max(size, 0)  # -1 is null
    return response[start:end].decode(), end
