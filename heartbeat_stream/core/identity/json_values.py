"""JSON with every number exact: what the layers read fields from.

A number with a fraction or an exponent becomes a ``Raw`` that holds its fixed-point text; an
integer becomes an int, or a ``Raw`` where it is too long for one. All else is as usual.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from heartbeat_stream.core.identity.numbers import fixed_point
from heartbeat_stream.core.json_object import object_of, parse, text_of

__all__ = ["decoder", "parsed", "raw_number", "text_of_number"]

T = TypeVar("T")

_REMEMBERED_MAX = 32
_INT_DIGITS_MAX = 18
"""A longer integer stays text in the careful way: int() refuses very long ones."""


def raw_number(text: str) -> Raw:
    """The number that this JSON text is, as a value. Raises Rejected beyond the bounds."""
    return _remembered(text) if len(text) <= _REMEMBERED_MAX else _made(text)


def _made(text: str) -> Raw:
    return Raw(fixed_point(text).encode())


# Prices come again and again: looking one up takes a fifth of the time. At most some 4 MB.
_remembered = lru_cache(maxsize=16_384)(_made)


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
