"""Until when a worker may be sure of its partitions."""

from heartbeat_stream.streaming.lease import Lease

SESSION_S, PATIENCE_S = 10.0, 100.0


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def leased(clock: Clock) -> Lease:
    return Lease(SESSION_S, PATIENCE_S, clock)


def state(lease: Lease) -> tuple[bool, bool]:
    """Whether it is held, and whether rows may be written."""
    return lease.held, lease.may_write


def test_nothing_is_held_before_the_coordinator_has_granted_anything() -> None:
    lease = leased(Clock())
    assert not lease.held


def test_it_is_held_for_a_session_from_the_question_on() -> None:
    clock = Clock()
    lease = leased(clock)
    lease.renew(clock.now - 4)  # the answer has taken four seconds
    clock.now += 5.9
    assert state(lease) == (True, True)
    clock.now += 0.1
    assert state(lease) == (False, False)


def test_a_late_answer_to_an_early_question_takes_nothing_back() -> None:
    clock = Clock()
    lease = leased(clock)
    lease.renew(clock.now)
    lease.renew(clock.now - 50)
    assert lease.age_s == 0


def test_it_is_held_again_with_the_next_grant() -> None:
    clock = Clock()
    lease = leased(clock)
    lease.renew(clock.now)
    clock.now += 60
    assert state(lease) == (False, False)
    lease.renew(clock.now)
    assert state(lease) == (True, True)


def test_rows_are_held_back_for_a_time_only() -> None:
    clock = Clock()
    lease = leased(clock)
    lease.renew(clock.now)
    clock.now += SESSION_S + PATIENCE_S - 0.1
    assert state(lease) == (False, False)
    clock.now += 0.1
    # Whoever has taken over has written all this long ago. But nothing new is taken in.
    assert state(lease) == (False, True)
