"""One report as it came over HTTP, and how it is kept in the spool."""

from collections.abc import Mapping
from urllib.parse import parse_qsl

import msgspec

from heartbeat_stream.core.reasons import Reason, Rejected

__all__ = ["Report", "decode_report", "encode_report", "read_report"]

_FORM_FIELDS_MAX = 100
_JSON_STARTS = (b"{", b"[")


class Report(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """``parts`` are the texts that hold events: JSON, or base64 of JSON that may be gzipped."""

    received_at_ms: int
    project: str | None
    remark: str | None
    parts: tuple[bytes, ...]

    @property
    def size(self) -> int:
        """Bytes, near enough."""
        return sum(map(len, self.parts))


encode_report = msgspec.msgpack.Encoder().encode
decode_report = msgspec.msgpack.Decoder(Report).decode


def read_report(query: Mapping[str, str], body: bytes, received_at_ms: int) -> Report:
    """What a request reports. ``parts`` is empty where it reports nothing.

    Raises :class:`Rejected` for a body that is no form, and no JSON by its first sign.
    """
    parts = [query[name].encode(errors="replace") for name in _DATA if name in query]
    text = body.strip()
    if text.startswith(_JSON_STARTS):
        parts.append(text)
    elif text:
        parts += _of_form(text)
    return Report(
        received_at_ms, _name(query.get("project")), _name(query.get("remark")), tuple(parts)
    )


_DATA = ("data", "data_list")


def _of_form(body: bytes) -> list[bytes]:
    try:
        fields = parse_qsl(body.decode("ascii"), max_num_fields=_FORM_FIELDS_MAX)
    except ValueError:  # UnicodeDecodeError is one
        raise Rejected(Reason.BAD_REPORT, "the body is neither a form nor JSON") from None
    return [value.encode() for name, value in fields if name in _DATA]


def _name(text: str | None) -> str | None:
    """A name of the query; what is no text in it becomes a question mark."""
    return text.encode(errors="replace").decode() if text else None
