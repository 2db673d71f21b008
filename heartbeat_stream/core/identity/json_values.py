"""JSON with every number exact: what the layers read fields from.

A number with a fraction or an exponent becomes a ``Raw`` that holds its fixed-point text; an
integer becomes an int, or a ``Raw`` where it is too long for one. All else is as usual.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from heartbeat_stream.core.identity.numbers import fixed_point
from heartbeat_stream.core.json_object import object_of, parse, text_of

__all__ = ["decoder", "parsed", "raw_number", "text_of_number"]

T = TypeVar("T")

_REMEMBERED_MAX = 32
_NUMBERS_MAX = 16_384
_INT_DIGITS_MAX = 18
"""A longer integer stays text in the careful way: int() refuses very long ones."""


class _Numbers(dict[str, Raw]):
    """Numbers by their texts. Prices come again and again: finding one takes a tenth of the time
    that it takes to make it. At most some 4 MB."""

    def __missing__(self, text: str) -> Raw:
        number = Raw(fixed_point(text).encode())
        if len(text) <= _REMEMBERED_MAX:
            if len(self) >= _NUMBERS_MAX:
                self.clear()
            self[text] = number
        return number


raw_number: Callable[[str], Raw] = _Numbers().__getitem__
"""The number that a JSON text is, as a value. Raises Rejected beyond the bounds."""


def decoder(kind: type[T]) -> Callable[[bytes | str], T]:
    """The fast way: a decoder to this type, with numbers as the module says.

    It raises ``msgspec.DecodeError`` or ``RecursionError`` for what only the careful way can tell
    about, and Rejected for numbers beyond the bounds.
    """
    return msgspec.json.Decoder(kind, float_hook=raw_number).decode


def parsed(value: bytes) -> dict[str, Any]:
    """The careful way: one JSON object, which a byte-order mark may lead. Raises Rejected."""
    return object_of(parse(text_of(value), parse_int=_integer, parse_float=raw_number))


def text_of_number(number: Raw) -> str:
    """The fixed-point text."""
    return bytes(number).decode()


def _integer(text: str) -> int | Raw:
    return int(text) if len(text) <= _INT_DIGITS_MAX else raw_number(text)
