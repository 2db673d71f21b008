"""Which parts of a worker have ended, or stand still."""

import pytest

from heartbeat_stream.liveness import STANDSTILL_S, Liveness


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def test_what_has_not_begun_does_not_count() -> None:
    assert Liveness().failed() == []


def test_a_task_that_has_ended_counts_however_it_ended() -> None:
    parts = Liveness()
    with parts.running("checkpoints"):
        assert parts.failed() == []
    assert parts.failed() == ["checkpoints has ended"]
    with parts.running("checkpoints"):  # somebody has started it again
        assert parts.failed() == []
    with pytest.raises(RuntimeError), parts.running("agent"):
        raise RuntimeError
    assert parts.failed() == ["checkpoints has ended", "agent has ended"]


def test_what_must_happen_again_and_again_may_be_late_but_not_for_ever() -> None:
    clock = Clock()
    parts = Liveness(clock)
    parts.tick("writing")
    parts.tick("housekeeping")
    clock.now += STANDSTILL_S
    assert parts.failed() == []
    parts.tick("housekeeping")
    clock.now += 0.1
    assert parts.failed() == ["writing stands still"]
    parts.tick("writing")
    assert parts.failed() == []
