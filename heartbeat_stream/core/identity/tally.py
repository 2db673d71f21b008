"""Counts of what the layers did, in a place that the caller owns and empties."""

from collections.abc import Callable
from dataclasses import dataclass

from heartbeat_stream.core.identity.layer import Layer


@dataclass(slots=True)
class LayerTally:
    """Of one layer. ``checks`` are the messages that it looked up, ``hits`` those it recognised."""

    checks: int = 0
    hits: int = 0
    abstentions: int = 0
    timed: int = 0
    """How many of the checks were timed, and"""
    timed_ns: int = 0
    """how long these took together; ``timed_ns / timed * checks`` is an estimate for all."""


class Tally:
    """Of one job. ``timer`` (``time.perf_counter_ns``) is asked for every ``sample``-th message."""

    def __init__(self, timer: Callable[[], int] | None = None, sample: int = 64) -> None:
        self.message_id = LayerTally()
        self.business_key = LayerTally()
        self.fingerprint = LayerTally()
        self.in_order = (self.message_id, self.business_key, self.fingerprint)
        self.by_layer = dict(zip(Layer, self.in_order, strict=True))
        self.messages = 0
        self.timer = timer
        self.sample = sample
