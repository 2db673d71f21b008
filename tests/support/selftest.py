"""The self-test of tracking: what its table says, and what it should say."""

from __future__ import annotations

from typing import Any

from heartbeat_stream.core.tracking_record import Verdict
from tests.support.command import Done, run_command
from tests.support.door import PATIENT, open_door
from tests.support.tracking import prepare_tracking
from tests.support.world import World

__all__ = ["agrees_at_the_door", "as_wanted", "numbers"]

#: Sent; rows and marked rows that are wanted, by policy.
WANTED = {
    "batch": (100, {"mark": (100, 0), "drop": (100, 0)}),
    "compressed": (100, {"mark": (100, 0), "drop": (100, 0)}),
    "repeated": (62, {"mark": (62, 42), "drop": (20, 0)}),
    "exempt": (32, {"mark": (32, 0), "drop": (32, 0)}),
    "single": (8, {"mark": (8, 0), "drop": (8, 0)}),
}


def numbers(done: Done) -> dict[str, list[int]]:
    """By kind: sent, rows wanted and found, marked wanted and found."""
    found = {}
    for line in done.out.splitlines()[1 : 1 + len(WANTED)]:
        kind, *rest = line.removesuffix("WRONG").split()
        found[kind] = list(map(int, rest))
    return found


def as_wanted(policy: str) -> dict[str, list[int]]:
    found = {}
    for kind, (sent, by_policy) in WANTED.items():
        rows, marked = by_policy[policy]
        found[kind] = [sent, rows, rows, marked, marked]
    return found


async def agrees_at_the_door(world: World, policy: str, **environment: Any) -> None:
    """Run it through a collector that judges, with a store by these settings."""
    await prepare_tracking(
        world, tracking_policy=policy, tracking_place="door", **PATIENT, **environment
    )
    world.start_worker()
    async with open_door(world.settings) as door:
        done = await run_command(world, "selftest", "tracking", "--url", door.url)
        assert numbers(done) == as_wanted(policy)
        judged = door.service.figures.events
    duplicates = sum(count for labels, count in judged.items() if Verdict.DUPLICATE in labels)
    assert duplicates == as_wanted("mark")["repeated"][-1], "the door has judged, not the job"
