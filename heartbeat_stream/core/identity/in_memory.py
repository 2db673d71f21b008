"""A whole job in memory: the engine with its state, for one process and for as long as it lives.

What `judge` runs on, and the tests. A worker keeps the same things in tables instead.
"""

from heartbeat_stream.core.identity.layers import Judge, Message, Verdict
from heartbeat_stream.core.identity.rules import JobRules
from heartbeat_stream.core.identity.scope_state import ScopeState
from heartbeat_stream.core.identity.seen import First
from heartbeat_stream.core.identity.tally import Tally

__all__ = ["InMemory", "SeenInMemory"]


class SeenInMemory:
    """Identities in a dict. What is oldest goes first once its time to live is over."""

    def __init__(self) -> None:
        self._held: dict[bytes, tuple[First, int]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def get(self, key: bytes) -> First | None:
        held = self._held.get(key)
        return held[0] if held is not None else None

    def add(self, key: bytes, first: First, ttl_ms: int) -> None:
        self._held.pop(key, None)
        self._held[key] = first, first.seen_at_ms + ttl_ms

    def expire(self, now_ms: int) -> None:
        """Drop what is over, as far as the oldest one that is not."""
        while self._held:
            oldest = next(iter(self._held))
            if self._held[oldest][1] > now_ms:
                return
            del self._held[oldest]


class InMemory:
    """Judges messages one after the other and remembers them."""

    def __init__(self, rules: JobRules, tally: Tally | None = None) -> None:
        self.judge = Judge(rules)
        self.tally = tally if tally is not None else Tally()
        self.seen = SeenInMemory()
        self.states: dict[bytes, ScopeState] = {}

    def take(self, value: bytes, here: First) -> tuple[Message, Verdict]:
        """Read and judge. ``here`` is the message's own place and time.

        Raises :class:`~heartbeat_stream.core.reasons.Rejected` and has then changed nothing.
        """
        message = self.judge.read(value)
        return message, self.take_read(message, here)

    def take_read(self, message: Message, here: First) -> Verdict:
        """The same for a message that was read already."""
        now_ms = here.seen_at_ms
        key = message.state_key
        state = self.states.get(key) if key is not None else None
        verdict = self.judge.judge(message, self.seen, state, now_ms, self.tally)
        for identity in verdict.record:
            self.seen.add(identity.key, here, identity.ttl_ms)
        if key is not None and verdict.state is not None:
            self.states[key] = verdict.state
        self.seen.expire(now_ms)
        return verdict
