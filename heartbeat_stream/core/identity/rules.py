"""What can be declared about a job's messages. Read from TOML by ``config/jobs.py``."""

from dataclasses import dataclass
from enum import StrEnum


class TimeUnit(StrEnum):
    """The unit of a time since 1970 in the input. It is declared, and never guessed."""

    S = "s"
    MS = "ms"
    US = "us"
    NS = "ns"


@dataclass(frozen=True)
class TimeRule:
    """A field that holds a time.

    It becomes whole microseconds, rounded down to ``precision``: two sources of which one knows
    milliseconds only name the same instant when ``precision`` is that of the coarser.
    """

    field: str
    unit: TimeUnit
    precision: TimeUnit = TimeUnit.US


class Gaps(StrEnum):
    """Whether the ids of a scope may skip."""

    ALLOWED = "allowed"
    FORBIDDEN = "forbidden"


class EpochMode(StrEnum):
    """How it is known that ids have started again."""

    NONE = "none"
    """They never do: an id is one message for as long as it is remembered."""
    FIELD = "field"
    """A field (a connection's id) changes then."""
    DETECT = "detect"
    """The id falls while the exchange time rises, and the following messages confirm it."""


Scalar = str | int


@dataclass(frozen=True)
class MessageIdRule:
    """The first layer: an id in a scope."""

    field: str
    scope: tuple[str, ...]
    ttl_ms: int
    gaps: Gaps = Gaps.ALLOWED
    invalid: tuple[Scalar, ...] = (0, "")
    epoch: EpochMode = EpochMode.NONE
    epoch_field: str | None = None
    confirmations: int = 3
    """How many messages, the first included, make a detected fall a new epoch."""


@dataclass(frozen=True)
class BusinessKeyRule:
    """The second layer: the fields that make a message one for the business."""

    fields: tuple[str, ...]
    """One of them may be the channel's time, which then counts in microseconds."""
    ttl_ms: int
    invalid: tuple[Scalar, ...] = ("",)


class HashWidth(StrEnum):
    """Which hash stands for the canonical form: 8 or 16 bytes."""

    XXH64 = "xxh64"
    XXH128 = "xxh128"


class Nulls(StrEnum):
    """Whether a member that is null is the same as one that is missing."""

    ABSENT = "absent"
    KEPT = "kept"


@dataclass(frozen=True)
class FingerprintRule:
    """The third layer: the whole content, in a canonical form."""

    ttl_ms: int
    hash: HashWidth = HashWidth.XXH64
    exclude: tuple[str, ...] = ()
    """Fields of the transport: the time of receipt, the route."""
    nulls: Nulls = Nulls.ABSENT
    numeric_strings: tuple[str, ...] = ()
    """Fields in which a string that spells a number is that number, at any depth."""
    times: tuple[TimeRule, ...] = ()
    """Further fields with a time, besides the channel's."""


@dataclass(frozen=True)
class ChannelRules:
    """One channel's layers; None where one is not used. No layer: every message is new."""

    time: TimeRule | None = None
    message_id: MessageIdRule | None = None
    business_key: BusinessKeyRule | None = None
    fingerprint: FingerprintRule | None = None


@dataclass(frozen=True)
class JobRules:
    """One job. ``channel_field`` holds a channel's name; "*" has the rules for all other names.

    ``scope`` are the fields that decide about the partition: messages that differ in one of them
    are never duplicates of each other.
    """

    channel_field: str
    scope: tuple[str, ...]
    channels: dict[str, ChannelRules]
