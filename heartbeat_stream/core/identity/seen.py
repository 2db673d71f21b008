"""What the engine asks of state: when and where an identity was first seen."""

from typing import NamedTuple, Protocol

import msgspec

from heartbeat_stream.core.identity.layer import Layer


class First(NamedTuple):
    """The first message with an identity: when it was judged, and where it stands."""

    seen_at_ms: int
    topic: str
    partition: int
    offset: int


class Identity(msgspec.Struct, frozen=True, gc=False):
    """One name of a message. ``key`` is unique over all layers, channels and scopes.

    A key begins with its layer's mark and a digest of the rules that made it: other rules make
    other keys, so that state from before a change of configuration never answers for what it did
    not mean.
    """

    layer: Layer
    key: bytes
    ttl_ms: int


class Seen(Protocol):
    """The identities that are held, those not yet durable included.

    ``get`` is called at most once for each layer and message. It may answer with one whose time to
    live is over: the engine looks at ``seen_at_ms`` itself. All keys that are asked for a message
    belong to its ``scope_key``, and so to one partition.
    """

    def get(self, key: bytes) -> First | None: ...
