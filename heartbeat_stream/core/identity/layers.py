"""The three layers in their order, and the verdict that they come to."""

import msgspec

from heartbeat_stream.core.identity.continuity import ContinuityEvent
from heartbeat_stream.core.identity.layer import Abstention, Layer
from heartbeat_stream.core.identity.rules import JobRules
from heartbeat_stream.core.identity.scope_state import ScopeState
from heartbeat_stream.core.identity.seen import First, Identity, Seen
from heartbeat_stream.core.identity.tally import Tally

__all__ = ["Judge", "Message", "Verdict"]


class Message:
    """A message as far as its identity needs it: read once, judged once."""

    __slots__ = ("channel", "scope_key", "value")

    value: bytes
    channel: str
    scope_key: bytes
    """What to partition by, and the key of the scope's continuity state."""


class Verdict(msgspec.Struct, frozen=True):
    """What was decided about one message.

    New: ``layer`` and ``first`` are None, and ``record`` holds every identity that the message is
    to be recorded under. A duplicate: ``layer`` recognised it, ``first`` is the message that it
    repeats, and ``record`` is empty.
    """

    layer: Layer | None
    first: First | None
    record: tuple[Identity, ...]
    state: ScopeState | None
    """The scope's state from now on; the one that was given, itself, if nothing has changed."""
    events: tuple[ContinuityEvent, ...]
    abstained: tuple[tuple[Layer, Abstention], ...]

    @property
    def is_new(self) -> bool:
        return self.layer is None

    @property
    def reason(self) -> str:
        """A few words for a header: which layer decided, and which ones abstained, and why."""
        raise NotImplementedError


class Judge:
    """Judges the messages of one job. Holds no state but caches; about 5 us for a message."""

    def __init__(self, rules: JobRules) -> None:
        self._rules = rules

    def read(self, value: bytes) -> Message:
        """Read a record's value as far as its scope and channel.

        Raises :class:`~heartbeat_stream.core.reasons.Rejected` for what cannot be judged.
        """
        raise NotImplementedError

    def judge(
        self,
        message: Message,
        seen: Seen,
        state: ScopeState | None,
        now_ms: int,
        tally: Tally,
    ) -> Verdict:
        """Decide. ``now_ms`` is the record's timestamp: with it, times to live are measured.

        A layer's key is made, and looked up, only if those before it passed the message. Raises
        :class:`~heartbeat_stream.core.reasons.Rejected` for a message with a time or a number
        that the rules don't allow; the state is then as it was.
        """
        raise NotImplementedError

    def explain(self, message: Message, verdict: Verdict) -> str:
        """One line for people: the fields and values that decided, made only when asked for."""
        raise NotImplementedError
