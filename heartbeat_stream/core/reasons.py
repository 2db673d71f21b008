"""Why a record became a dead letter: every code that its header ``reason`` can carry.

The codes are part of the public interface. Alerts and dashboards are built on them, so a code is
added here and nowhere else, and an existing one never changes its meaning.
"""

from enum import StrEnum


class Reason(StrEnum):
    """A dead-letter reason: the short code itself, and in ``meaning`` a sentence about it."""

    meaning: str

    def __new__(cls, code: str, meaning: str) -> "Reason":
        member = str.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member

    NOT_UTF8 = "not-utf8", "The value is not UTF-8 text."
    NOT_JSON = (
        "not-json",
        "The value is empty, is not JSON, holds NaN or Infinity, or goes on after its end.",
    )
    TOO_DEEP = (
        "too-deep",
        "The value nests lists or objects deeper than can be followed (500 levels always can).",
    )
    NOT_OBJECT = "not-object", "The value is JSON, but not an object."
    MISSING_FIELD = "missing-field", "hotel_id, room_id or ts_ms is missing or null."
    BAD_HOTEL_ID = (
        "bad-hotel-id",
        "hotel_id is neither an integer nor a string of ASCII digits, or lies outside 0 to 32767.",
    )
    BAD_ROOM_ID = (
        "bad-room-id",
        "room_id is neither an integer nor a string of 1 to 255 characters, "
        "or holds a NUL or a lone surrogate.",
    )
    BAD_DEVICE_ID = (
        "bad-device-id",
        "device_id is neither null nor a string of at most 255 characters, "
        "or holds a NUL or a lone surrogate.",
    )
    BAD_TS_MS = (
        "bad-ts-ms",
        "ts_ms is neither an integer, nor a string of ASCII digits, nor a float with an "
        "integral value.",
    )
    TS_TOO_OLD = (
        "ts-too-old",
        "ts_ms lies before HEARTBEAT_MIN_TS_MS; a time in seconds does, too.",
    )
    TS_TOO_NEW = (
        "ts-too-new",
        "ts_ms lies more than HEARTBEAT_MAX_FUTURE_MS ahead of the worker's clock.",
    )
    BAD_STATUS = (
        "bad-status",
        "status is neither null, nor an integer, nor a string of digits with or without a "
        "leading minus, or lies outside -32768 to 32767.",
    )
    WRONG_KEY = (
        "wrong-key",
        "With HEARTBEAT_SOURCE_KEYED=true: the record's key is not the hotel:room of its value.",
    )
    MISSING_SCOPE_FIELD = (
        "missing-scope-field",
        "A field that the configuration names as the channel or as part of the scope is missing "
        "or null.",
    )
    UNKNOWN_CHANNEL = "unknown-channel", "The configuration has no rules for the message's channel."
    BAD_KEY_FIELD = (
        "bad-key-field",
        "A field of an id, a scope or a business key is neither text nor a number, "
        "or is longer than 1024 characters.",
    )
    BAD_TIME = (
        "bad-time",
        "A field that is declared to be a time holds no number, or one that in the declared unit "
        "lies outside the years 1970 to 9999.",
    )
    NUMBER_TOO_LARGE = (
        "number-too-large",
        "A number has an exponent beyond 1100 or -1100: written out, it would be too long.",
    )
    BAD_TEXT = "bad-text", "A string or a key holds half a surrogate pair, which is no text."
    BAD_REPORT = (
        "bad-report",
        "A tracking report holds no data or data_list, its base64 or gzip is broken, or it "
        "unpacks to more than the collector takes.",
    )
    TOO_LARGE = "too-large", "The record is larger than a topic takes that it has to go to."
    ROW_REFUSED = "row-refused", "The database refuses the row, whatever is sent along with it."


DETAIL_MAX = 200
"""Longest detail, in characters."""


class Rejected(Exception):
    """The record is no heartbeat: it belongs in the dead letters.

    ``detail`` names the field and what would be right, in at most ``DETAIL_MAX`` printable ASCII
    characters, with no more than a short excerpt of the value.
    """

    def __init__(self, reason: Reason, detail: str) -> None:
        self.reason = reason
        self.detail = detail[:DETAIL_MAX]
        super().__init__(f"{reason}: {self.detail}")
