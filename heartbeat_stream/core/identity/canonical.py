"""The canonical form of a message: messages that are equal by the rules have the same bytes.

The form is JSON. Members are in the order of their keys' code points, numbers are fixed-point text
(see ``numbers``), arrays are in their order, declared times are whole microseconds, and there is no
space between. What is declared to be of the transport is left out, and so are null members where a
null means "missing". Of a repeated key the last value counts.

RFC 8785 (JCS) is the nearest standard. The differences, each on purpose: JCS reads every number as
a double, so that integers above 2**53 and prices with many digits lose theirs, and writes some with
an exponent; JCS sorts keys by UTF-16 code units. As there, half a surrogate pair is refused.
"""

from typing import Any

import msgspec

from heartbeat_stream.core.identity.json_values import decoder, parsed, raw_number
from heartbeat_stream.core.identity.numbers import is_number
from heartbeat_stream.core.identity.rules import FingerprintRule, Nulls, TimeRule
from heartbeat_stream.core.identity.times import microseconds
from heartbeat_stream.core.json_object import too_deep
from heartbeat_stream.core.reasons import Reason, Rejected

__all__ = ["FORM_VERSION", "CanonicalForm"]

FORM_VERSION = 1
"""Goes up with every change of the form: fingerprints of other versions never match."""

_decode = decoder(dict)
_encode = msgspec.json.Encoder(order="sorted").encode


class CanonicalForm:
    """The form under one declaration. ``time`` is the channel's, where it has one."""

    def __init__(self, rule: FingerprintRule, time: TimeRule | None = None) -> None:
        self._exclude = frozenset(rule.exclude)
        self._drops_nulls = rule.nulls is Nulls.ABSENT
        self._numeric_strings = rule.numeric_strings
        times = (*rule.times, *([time] if time else []))
        self._times = tuple((each.field, microseconds(each)) for each in times)

    def of(self, value: bytes) -> bytes:
        """The form of the JSON object in a record's value.

        Raises :class:`Rejected` for what is no JSON object, and for a number or a time beyond the
        bounds. A few microseconds, and as long as the value is, more or less.
        """
        try:
            document = _decode(value)
        except (msgspec.DecodeError, RecursionError):
            document = parsed(value)
        self._apply(document, value)
        try:
            return _encode(document)
        except RecursionError:
            raise too_deep() from None
        except UnicodeEncodeError:
            detail = "a string or a key holds half a surrogate pair"
            raise Rejected(Reason.BAD_TEXT, detail) from None

    def _apply(self, document: dict[str, Any], value: bytes) -> None:
        if not self._exclude.isdisjoint(document):
            for field in self._exclude:
                document.pop(field, None)
        if self._drops_nulls and b"null" in value:
            _drop_nulls(document)
        for field, convert in self._times:
            given = document.get(field)
            if given is not None:
                document[field] = convert(given)
        for field in self._numeric_strings:
            if field in document:
                document[field] = _with_numbers(document[field])


def _drop_nulls(document: dict[str, Any]) -> None:
    """Null members at any depth. A null in an array stays: it has a place."""
    unseen: list[Any] = [document]
    while unseen:
        node = unseen.pop()
        if type(node) is dict:
            for key in [key for key, member in node.items() if member is None]:
                del node[key]
            unseen.extend(node.values())
        elif type(node) is list:
            unseen.extend(node)


def _with_numbers(value: Any) -> Any:
    """The same with each string that spells a number as that number."""
    if type(value) is str:
        return raw_number(value) if is_number(value) else value
    unseen = [value]
    while unseen:
        node = unseen.pop()
        if type(node) is dict:
            places: Any = node.items()
        elif type(node) is list:
            places = enumerate(node)
        else:
            continue
        for place, member in places:
            if type(member) is str:
                if is_number(member):
                    node[place] = raw_number(member)
            else:
                unseen.append(member)
    return value
