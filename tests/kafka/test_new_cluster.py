"""Commands on a cluster that no group has used yet."""

from __future__ import annotations

import pytest

from tests.support.command import run_command
from tests.support.world import World

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


async def test_a_group_that_the_cluster_has_never_heard_of_is_said_to_have_committed_nothing(
    own_world: World,
) -> None:
    await own_world.prepare()
    source = ("replay", "source", "--from", "earliest", "--yes")
    refused = await run_command(own_world, *source, code=1)
    assert f"the group {own_world.settings.app_id} has committed no offset" in refused.err
