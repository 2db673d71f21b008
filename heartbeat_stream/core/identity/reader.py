"""The fields of a message that its identities need, read from a record's value.

The fast way decodes only those fields. What msgspec cannot read, or does not check where it skips
the rest, takes the careful way.
"""

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any

import msgspec

from heartbeat_stream.core.identity.json_values import decoder, parsed
from heartbeat_stream.core.json_object import text_of

__all__ = ["Reader"]


class Reader:
    """Reads these fields, whatever their names are. A missing one is None, as a null is."""

    def __init__(self, fields: Iterable[str]) -> None:
        names = list(dict.fromkeys(fields))
        self._attributes = {name: f"f{place}" for place, name in enumerate(names)}
        self._kind: Any = msgspec.defstruct(
            "ReadFields",
            [(attribute, Any, None) for attribute in self._attributes.values()],
            rename={attribute: name for name, attribute in self._attributes.items()},
        )
        self._decode = decoder(self._kind)
        self._names = names

    def read(self, value: bytes) -> object:
        """The fields of the JSON object in a record's value. Raises :class:`Rejected`."""
        try:
            fields = self._decode(value)
        except (msgspec.DecodeError, RecursionError):
            document = parsed(value)
            return self._kind(*[document.get(name) for name in self._names])
        if not value.isascii():
            text_of(value)  # raises Rejected: msgspec does not look into what it skips
        return fields

    def getter(self, field: str) -> Callable[[object], Any]:
        """A function from what :meth:`read` returned to the value of one of its fields."""
        return attrgetter(self._attributes[field])

    def getters(self, *fields: str) -> Callable[[object], Any]:
        """The same for several: a function to a tuple."""
        if len(fields) == 1:
            get = self.getter(fields[0])
            return lambda read: (get(read),)
        return attrgetter(*[self._attributes[field] for field in fields])
