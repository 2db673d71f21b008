"""Faults that tests inject, and how much of them: HEARTBEAT_TEST_FULL=1 asks for all.

Without it, faults that repeat themselves are repeated less, so that the suite stays short.
"""

from __future__ import annotations

import os
import random
import shutil

import pytest

from tests.support.world import World

__all__ = ["FULL", "lose_files", "needs_kafka"]

FULL = os.environ.get("HEARTBEAT_TEST_FULL", "") not in ("", "0")


def needs_kafka(world: World, why: str) -> None:
    """Skip the test on the embedded broker, which cannot do what it needs."""
    if world.cluster.kind == "embedded":
        pytest.skip(f"the embedded broker {why}")


def lose_files(world: World, files: str, chance: random.Random) -> None:
    """What a worker that was killed finds of its local state: it is ended already.

    files: "kept", "removed", "half removed" (whole stores and single files, at random), or "now and
    then removed" (all of them, every other time by chance).
    """
    root = world.settings.data_dir
    if files == "now and then removed":
        files = chance.choice(["kept", "removed"])
    if files == "removed":
        shutil.rmtree(root, ignore_errors=True)
    elif files == "half removed":
        stores = sorted(path for path in root.glob("*/worker-*/v*/tables/*") if path.is_dir())
        for store in stores:
            fate = chance.random()
            if fate < 1 / 3:
                shutil.rmtree(store)
            elif fate < 2 / 3:
                for path in sorted(store.iterdir()):
                    if chance.random() < 1 / 2:
                        path.unlink()
    else:
        assert files == "kept", files
