"""A slow reading of the canonical form, which shares no code with the product's.

Numbers are ``Decimal``, and the text is written by hand.
"""

from __future__ import annotations

import json
from decimal import Context, Decimal, InvalidOperation
from typing import Any

__all__ = ["slow_form"]

_EXPONENT_MAX = 1_100
_EXACT = Context(prec=10_000, Emax=10**6, Emin=-(10**6))


class _Refused(ValueError):
    pass


def slow_form(value: bytes, excluded: str, microseconds: str) -> bytes | None:
    """The form without one field, and with one that holds microseconds; None for a dead letter.

    Numbers of more than 10,000 digits and documents deeper than Python can follow are not for it.
    """
    try:
        document = json.loads(
            value.decode().removeprefix("\ufeff"),
            parse_int=_number,
            parse_float=_number,
            parse_constant=_refuse,
        )
        if not isinstance(document, dict):
            return None
        document.pop(excluded, None)
        if document.get(microseconds) is not None:
            document[microseconds] = _time(document[microseconds])
        return _written(document).encode()
    except ValueError:  # UnicodeError and JSONDecodeError are of this kind, too
        return None


def _refuse(text: str) -> Any:
    raise _Refused(text)


def _number(text: str) -> Decimal:
    _, _, exponent = text.lower().partition("e")
    if exponent and abs(int(exponent[:20])) > _EXPONENT_MAX:
        raise _Refused(text)
    return Decimal(text)


def _time(given: object) -> Decimal:
    if isinstance(given, str) and len(given) <= 64 and given.strip() == given:
        try:
            given = json.loads(given, parse_int=_number, parse_float=_number)
        except json.JSONDecodeError:
            raise _Refused from None
    if not isinstance(given, Decimal):
        raise _Refused
    if not 0 <= given <= 253_402_300_799_999_999 + Decimal("0.9999999"):
        raise _Refused
    return Decimal(int(given))


def _written(node: Any) -> str:
    if isinstance(node, dict):
        members = sorted((key, member) for key, member in node.items() if member is not None)
        return "{" + ",".join(f"{_text(key)}:{_written(member)}" for key, member in members) + "}"
    if isinstance(node, list):
        return "[" + ",".join(map(_written, node)) + "]"
    if isinstance(node, Decimal):
        return _plain(node)
    return _text(node) if isinstance(node, str) else json.dumps(node)


def _plain(number: Decimal) -> str:
    try:
        text = f"{number.normalize(_EXACT):f}"
    except InvalidOperation:
        raise _Refused from None
    return "0" if number == 0 else text


def _text(text: str) -> str:
    text.encode()  # raises UnicodeEncodeError for half a surrogate pair
    return json.dumps(text, ensure_ascii=False)
