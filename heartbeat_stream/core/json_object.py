"""JSON text to the raw values of a record's fields, whatever type they have.

This is the careful way: it is taken by records that are spelled in an unusual manner or broken.
"""

import json
from collections.abc import Callable
from typing import Any, NoReturn

import msgspec

from heartbeat_stream.core.fields import integer_of
from heartbeat_stream.core.reasons import Reason, Rejected

_BOM = "\ufeff"


class RawFields(msgspec.Struct, gc=False):
    """A heartbeat's fields as JSON gave them; None where one is null or missing."""

    hotel_id: Any = None
    room_id: Any = None
    ts_ms: Any = None
    device_id: Any = None
    status: Any = None


_decode = msgspec.json.Decoder(RawFields).decode


def raw_fields(value: bytes) -> RawFields:
    """Read the text of one JSON object, which a byte-order mark may lead.

    Of a duplicated key the last value counts; unknown fields are checked to be JSON and dropped.
    Raises :class:`Rejected` if the text is not UTF-8, not JSON or not an object.
    """
    text = text_of(value)
    try:
        return _decode(text)
    except (msgspec.DecodeError, RecursionError):
        # Broken, or one of the things that JSON allows and msgspec does not: numbers of any
        # size, and lone surrogates, which matter only in the fields that are kept.
        document = object_of(parse(text, parse_int=integer_of))
        return RawFields(*map(document.get, RawFields.__struct_fields__))


def text_of(value: bytes) -> str:
    """The text, without a byte-order mark that may lead it. Raises :class:`Rejected`."""
    try:
        return value.decode().removeprefix(_BOM)
    except UnicodeDecodeError as error:
        detail = f"the value is not UTF-8: {error.reason} at byte {error.start}"
        raise Rejected(Reason.NOT_UTF8, detail) from None


def parse(
    text: str,
    parse_int: Callable[[str], object],
    parse_float: Callable[[str], object] | None = None,
) -> object:
    """Read any JSON text, with numbers as these make them. Raises :class:`Rejected`."""
    try:
        return json.loads(
            text, parse_int=parse_int, parse_float=parse_float, parse_constant=_reject_constant
        )
    except json.JSONDecodeError as error:
        detail = f"not JSON: {error.msg} at character {error.pos}" if text else "the value is empty"
        raise Rejected(Reason.NOT_JSON, detail) from None
    except RecursionError:
        raise too_deep() from None


def object_of(document: object) -> dict[str, Any]:
    """The document itself, if it is an object; otherwise raises :class:`Rejected`."""
    if isinstance(document, dict):
        return document
    kind = {list: "a list", str: "a string", type(None): "null"}.get(type(document), "a scalar")
    raise Rejected(Reason.NOT_OBJECT, f"the value is {kind}, should be a JSON object")


def too_deep() -> Rejected:
    """What to raise where a document cannot be followed to its end."""
    return Rejected(Reason.TOO_DEEP, "the value nests lists or objects too deep to be followed")


def _reject_constant(name: str) -> NoReturn:
    raise Rejected(Reason.NOT_JSON, f"not JSON: {name} is no JSON number")
