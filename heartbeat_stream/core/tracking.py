"""Events of analytics SDKs: what one is, which of them can be told apart, and how one is marked.

An event has an identity only if it is of a type that is reported in batches and carries the id and
the time that its SDK gave it: project, distinct id, ``_track_id`` and ``time``. All else passes
untouched: better twice than never. ``_flush_time`` is when a report was sent, and so is different
in each copy; the content as a whole is no identity either, since copies differ in it.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw

from heartbeat_stream.core.identity.joining import PART_MAX, join, part_of
from heartbeat_stream.core.identity.json_values import raw_number
from heartbeat_stream.core.identity.numbers import fixed_point, is_number
from heartbeat_stream.core.json_object import object_of, parse, text_of
from heartbeat_stream.core.reasons import Rejected

__all__ = [
    "DEFAULT_PROJECT",
    "MARK",
    "OTHER",
    "BoundedNames",
    "TrackingEvent",
    "judged_types",
    "marked",
    "read_event",
    "unmarked",
]

DEFAULT_PROJECT = "default"
MARK = "du-"
OTHER = "other"
"""What a label says of all the names beyond its bound."""

_TRACK = "track"
_SIGNUP = "track_signup"
_BIGINT = 2**63
_INT_DIGITS_MAX = 18
_BIGINT_CHARACTERS_MAX = 20


def judged_types(*, signup: bool) -> tuple[str, ...]:
    """The types of events that may have an identity."""
    return (_TRACK, _SIGNUP) if signup else (_TRACK,)


class TrackingEvent(msgspec.Struct, frozen=True, gc=False):
    """What is known of an event by itself. Text is "" and all else None where it has no such field.

    ``track_id`` and ``time`` are the texts that an identity is made of; ``time_ms`` is the time as
    a whole number of milliseconds, where it is one that fits into 64 bits.
    """

    project: str
    distinct_id: str
    type: str
    event: str
    lib: str
    track_id: str | None
    time: str | None
    time_ms: int | None
    flush_time_ms: int | None
    remark: str | None

    @property
    def partition_key(self) -> bytes:
        """What all events with the same project and distinct id share, and no others."""
        return join((self.project, self.distinct_id))

    def identity(self, *, signup: bool = False) -> bytes | None:
        """The key that the copies of an event share, and no others; None where it has none.

        ``signup``: whether events of the type ``track_signup`` have one too. The key begins with
        ``partition_key``.
        """
        if self.type not in judged_types(signup=signup):
            return None
        if not self.distinct_id or self.track_id is None or self.time is None:
            return None
        if _is_zero(self.track_id) or _is_zero(self.time):
            return None
        return join((self.project, self.distinct_id, self.track_id, self.time))


class _Fields(msgspec.Struct, gc=False):
    """Fields as JSON gave them. What is kept raw may hold anything at all."""

    type: Any = None
    event: Any = None
    distinct_id: Any = None
    project: Any = None
    remark: Any = None
    time: Any = None
    track_id: Any = msgspec.field(default=None, name="_track_id")
    flush_time: Any = msgspec.field(default=None, name="_flush_time")
    lib: Raw = Raw()
    dollar_lib: Raw = msgspec.field(default=Raw(), name="$lib")
    properties: Raw = Raw()


class _Lib(msgspec.Struct, gc=False):
    name: Any = msgspec.field(default=None, name="$lib")


def _number(text: str) -> object:
    """A number as :func:`part_of` takes it; None for one that cannot be written out."""
    try:
        return raw_number(text)
    except Rejected:
        return None


def _integer(text: str) -> object:
    return int(text) if len(text) <= _INT_DIGITS_MAX else _number(text)


_decode: Callable[[str], _Fields] = msgspec.json.Decoder(_Fields, float_hook=_number).decode
_decode_lib: Callable[[Raw], _Lib] = msgspec.json.Decoder(_Lib, float_hook=_number).decode


def read_event(
    value: bytes, project: str | None = None, remark: str | None = None
) -> TrackingEvent:
    """Read one event. ``project`` and ``remark`` come with the report and count before its own.

    Raises :class:`Rejected` for what is no JSON object. No field makes an event wrong: one of an
    odd type counts as missing, and then the event cannot be judged.
    """
    fields = _fields_of(value)
    time = _part(fields.time)
    number = time is not None and is_number(time)
    return TrackingEvent(
        project=project or _part(fields.project) or DEFAULT_PROJECT,
        distinct_id=_part(fields.distinct_id) or "",
        type=_part(fields.type) or "",
        event=_part(fields.event) or "",
        lib=_lib_of(fields),
        track_id=_part(fields.track_id),
        time=time if number else None,
        time_ms=_whole(time),
        flush_time_ms=_whole(_part(fields.flush_time)),
        remark=remark if remark is not None else _part(fields.remark),
    )


def marked(remark: str | None) -> str:
    """The remark of a duplicate: with the mark before it, once."""
    remark = remark or ""
    return remark if remark.startswith(MARK) else MARK + remark


def unmarked(remark: str | None) -> str | None:
    """The remark of an event that was marked and is no duplicate: without any mark before it, and
    None where nothing is left.
    """
    if remark is None or not remark.startswith(MARK):
        return remark
    while remark.startswith(MARK):
        remark = remark.removeprefix(MARK)
    return remark or None


class BoundedNames:
    """Names as labels: the first so many of them as they are, all others as ``OTHER``.

    Whoever sends events chooses the names of projects and SDKs, and a figure's memory is bounded.
    """

    LENGTH_MAX = 64

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: set[str] = set()

    def __call__(self, name: str) -> str:
        if name in self._known:
            return name
        if len(self._known) >= self._most or len(name) > self.LENGTH_MAX or not name.isprintable():
            return OTHER
        self._known.add(name)
        return name


def _fields_of(value: bytes) -> _Fields:
    text = text_of(value)
    try:
        return _decode(text)
    except (msgspec.DecodeError, RecursionError):
        # Broken, or odd in a manner that JSON allows and msgspec does not.
        document = object_of(parse(text, parse_int=_integer, parse_float=_number))
        return _Fields(
            **{
                field.name: document.get(field.encode_name)
                for field in msgspec.structs.fields(_Fields)
                if field.type is not Raw
            },
            lib=_raw(document.get("lib")),
            dollar_lib=_raw(document.get("$lib")),
            properties=_raw(document.get("properties")),
        )


def _raw(document: object) -> Raw:
    """Again as JSON, of the one member that counts."""
    name = document.get("$lib") if isinstance(document, dict) else None
    text = _part(name)
    return Raw(msgspec.json.encode({"$lib": text})) if text is not None else Raw()


def _lib_of(fields: _Fields) -> str:
    """The SDK: from ``lib``, where it belongs, or else from where some SDKs have it."""
    for raw in (fields.lib, fields.dollar_lib, fields.properties):
        try:
            name = _part(_decode_lib(raw).name)
        except (msgspec.DecodeError, RecursionError):  # missing, or no object
            continue
        if name:
            return name
    return ""


def _part(value: object) -> str | None:
    """The text of a field; None where it is missing, null, or nothing that has one."""
    if value is None:
        return None
    try:
        return part_of(value, "")
    except Rejected:
        return None


def _is_zero(text: str) -> bool:
    """Whether this is no id and no time at all: 0 in any spelling, or nothing."""
    return not text.strip("0.+-")


def _whole(text: str | None) -> int | None:
    if text is None or len(text) > PART_MAX or not is_number(text):
        return None
    try:
        whole = fixed_point(text).partition(".")[0]
    except Rejected:
        return None
    number = int(whole) if len(whole) <= _BIGINT_CHARACTERS_MAX else _BIGINT
    return number if -_BIGINT <= number < _BIGINT else None
