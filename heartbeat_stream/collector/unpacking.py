"""From the text of a report to its events: base64, gzip, JSON, each within bounds."""

import base64
import binascii
import json
import zlib
from typing import Final, NamedTuple

import msgspec
from msgspec import Raw

from heartbeat_stream.core.json_object import text_of, too_deep
from heartbeat_stream.core.reasons import Reason, Rejected

__all__ = ["Bounds", "events_of", "unpack"]

_GZIP: Final = b"\x1f\x8b"
_GZIP_WINDOW: Final = 31
_JSON_STARTS: Final = (b"{", b"[")
#: SDKs that don't escape what they send: "+" arrives as a space. URL-safe base64 is taken as well.
_SPELLINGS: Final = bytes.maketrans(b" -_", b"++/")
_BOM: Final = b"\xef\xbb\xbf"
_SPACE: Final = " \t\r\n"

_decode_list = msgspec.json.Decoder(list[Raw]).decode
_scan = json.JSONDecoder().raw_decode


class Bounds(NamedTuple):
    """The most that one report may hold."""

    unpacked_bytes: int
    events: int


def unpack(part: bytes, bounds: Bounds) -> bytes:
    """The JSON text. Raises :class:`Rejected`. Takes no more memory than the bounds allow."""
    text = part.strip()
    if not text.startswith(_JSON_STARTS):
        text = _from_base64(text)
        if text.startswith(_GZIP):
            text = _gunzip(text, bounds.unpacked_bytes)
    if len(text) > bounds.unpacked_bytes:
        raise _too_much(bounds.unpacked_bytes)
    return text.removeprefix(_BOM).strip()


def events_of(document: bytes, bounds: Bounds) -> list[bytes]:
    """The text of each event, as it came: of a list, or of a single one.

    Raises :class:`Rejected` where the document is no JSON; what an entry is, is not looked at.
    """
    if not document.startswith(b"["):
        return [document]
    try:
        events = [bytes(raw) for raw in _decode_list(document)]
    except (msgspec.DecodeError, RecursionError):
        # Broken, or odd in a manner that JSON allows and msgspec does not.
        events = _carefully(text_of(document), bounds.events)
    if len(events) > bounds.events:
        raise Rejected(Reason.BAD_REPORT, f"more than {bounds.events} events in a list")
    return events


def _from_base64(text: bytes) -> bytes:
    plain = text.translate(_SPELLINGS, b"\r\n").rstrip(b"=")
    try:
        return base64.b64decode(plain + b"=" * (-len(plain) % 4), validate=True)
    except binascii.Error:
        raise Rejected(Reason.BAD_REPORT, "data is neither JSON nor base64") from None


def _gunzip(data: bytes, limit: int) -> bytes:
    inflater = zlib.decompressobj(_GZIP_WINDOW)
    try:
        text = inflater.decompress(data, limit + 1)
    except zlib.error:
        raise Rejected(Reason.BAD_REPORT, "data is broken gzip") from None
    if len(text) > limit:
        raise _too_much(limit)
    if not inflater.eof:
        raise Rejected(Reason.BAD_REPORT, "data is gzip that was cut off")
    return text


def _too_much(limit: int) -> Rejected:
    return Rejected(Reason.BAD_REPORT, f"it unpacks to more than {limit} bytes")


def _carefully(text: str, most: int) -> list[bytes]:
    """The entries of a list, by Python's own parser. One more than allowed ends it."""
    events: list[bytes] = []
    at = _skip(text, 1)
    if text[at : at + 1] == "]":
        return events
    while len(events) <= most:
        try:
            _, end = _scan(text, at)
        except json.JSONDecodeError as error:
            raise _broken(error.pos) from None
        except RecursionError:
            raise too_deep() from None
        events.append(text[at:end].encode())
        at = _skip(text, end)
        sign = text[at : at + 1]
        if sign == "]" and not text[at + 1 :].strip(_SPACE):
            return events
        if sign != ",":
            raise _broken(at)
        at = _skip(text, at + 1)
    return events


def _skip(text: str, at: int) -> int:
    while text[at : at + 1] and text[at] in _SPACE:
        at += 1
    return at


def _broken(at: int) -> Rejected:
    return Rejected(Reason.NOT_JSON, f"not JSON: a list that is broken at character {at}")
