"""JSON text to the raw values of a heartbeat's fields, whatever type they have.

This is the careful way: it is taken by records that are spelled in an unusual manner or broken.
"""

import json
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
    try:
        text = value.decode().removeprefix(_BOM)
    except UnicodeDecodeError as error:
        detail = f"the value is not UTF-8: {error.reason} at byte {error.start}"
        raise Rejected(Reason.NOT_UTF8, detail) from None
    try:
        return _decode(text)
    except (msgspec.DecodeError, RecursionError):
        # Broken, or one of the things that JSON allows and msgspec does not: numbers of any
        # size, and lone surrogates, which matter only in the fields that are kept.
        return _raw_fields_of(_parse(text))


def _parse(text: str) -> object:
    try:
        return json.loads(text, parse_int=integer_of, parse_constant=_reject_constant)
    except json.JSONDecodeError as error:
        detail = f"not JSON: {error.msg} at character {error.pos}" if text else "the value is empty"
        raise Rejected(Reason.NOT_JSON, detail) from None
    except RecursionError:
        detail = "the value nests lists or objects too deep to be followed"
        raise Rejected(Reason.TOO_DEEP, detail) from None


def _reject_constant(name: str) -> NoReturn:
    raise Rejected(Reason.NOT_JSON, f"not JSON: {name} is no JSON number")


def _raw_fields_of(document: object) -> RawFields:
    if not isinstance(document, dict):
        kind = {list: "a list", str: "a string", type(None): "null"}.get(type(document), "a scalar")
        raise Rejected(Reason.NOT_OBJECT, f"the value is {kind}, should be a JSON object")
    return RawFields(*map(document.get, RawFields.__struct_fields__))
