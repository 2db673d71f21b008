"""What every recovery is to the command line: it tells what it would do, and does it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from heartbeat_stream.recovery.tables import Progress

__all__ = ["Operation", "Progress"]


class Operation(Protocol):
    """Both raise RecoveryError, and what Kafka, the disk and the database raise.

    ``run`` makes its own connections, and looks again at what may have changed since the plan.
    """

    async def plan(self, progress: Progress) -> Sequence[str]:
        """Exactly what :meth:`run` would do now, in lines for people. Changes nothing."""

    async def run(self, progress: Progress) -> Sequence[str]:
        """Do it; what was done, in lines for people. To be called after :meth:`plan`.

        Raises PartlyDone where something is left that nobody can do but the operator.
        """
