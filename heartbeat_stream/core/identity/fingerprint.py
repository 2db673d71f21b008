"""The third layer: the hash of a message's canonical form.

XXH64 has 64 bits. While ``n`` fingerprints are held in a partition, a new message there is taken
for an old one with a chance of ``n / 2**64``: at ``rate`` messages a second, ``rate * n / 2**64``
a second are lost. docs/duplicates.md has this for expected volumes; ``xxh128`` makes it nothing.
Neither withstands somebody who looks for two messages with one hash.
"""

from collections.abc import Callable, Mapping

import xxhash

from heartbeat_stream.core.identity.canonical import CanonicalForm
from heartbeat_stream.core.identity.rules import FingerprintRule, HashWidth, TimeRule

__all__ = ["fingerprint_of"]

_HASHES: Mapping[HashWidth, Callable[[bytes], bytes]] = {
    HashWidth.XXH64: xxhash.xxh64_digest,
    HashWidth.XXH128: xxhash.xxh3_128_digest,
}


def fingerprint_of(rule: FingerprintRule, time: TimeRule | None) -> Callable[[bytes], bytes]:
    """A function from a record's value to its fingerprint; it raises Rejected as the form does."""
    form = CanonicalForm(rule, time).of
    digest = _HASHES[rule.hash]

    def fingerprint(value: bytes) -> bytes:
        return digest(form(value))

    return fingerprint
