"""The second layer: the fields that make a message one for the business.

The exchange's time, where it is one of them, counts in microseconds. Where a field is missing, null
or declared invalid, there is no key, and the layer abstains: a key with a hole in it would make
one of many different messages.
"""

from collections.abc import Callable, Sequence

from heartbeat_stream.core.identity.joining import join_one, part_of
from heartbeat_stream.core.identity.layer import Abstention

__all__ = ["business_key"]

Getter = Callable[[object], object]
"""From what was read of a message to one field; None where it is missing or null."""


def business_key(
    fields: Sequence[tuple[str, Getter | None]], invalid: Sequence[str]
) -> Callable[[object, int | None], bytes | Abstention]:
    """A function from a message's read fields, and its time in microseconds, to its key.

    ``fields`` are a name and a way to the value each, None for the time; ``invalid`` are parts
    that are none.
    """
    none_at_all = frozenset(invalid)

    def key_of(read: object, time_us: int | None) -> bytes | Abstention:
        key = b""
        for name, get in fields:
            value = time_us if get is None else get(read)
            if value is None:
                return Abstention.MISSING
            part = part_of(value, name)
            if part in none_at_all:
                return Abstention.INVALID
            key += join_one(part)
        return key

    return key_of
