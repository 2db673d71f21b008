"""What happens between an assignment and the first record: the state is brought up to date.

Faust recovers a table record by record through the worker's own consumer. This takes its place:
changelogs are read by batches with a consumer of their own, and the engine is told.

Relied upon in faust-streaming 0.15.3: ``Recovery.on_rebalance`` works out ``active_tps`` and sets
``signal_recovery_start``; ``on_recovery_completed`` seeks the source topics to their committed
offsets, resumes the flow and ends the rebalance; a table manager waits a second in ``on_start`` for
tables to register, which ours, declared before the start, need not.
``tests/kafka/test_recovery.py`` breaks where that changes.
"""

import asyncio
from typing import Any, cast

from aiokafka.errors import IllegalStateError, KafkaError
from faust.tables.manager import TableManager
from faust.tables.recovery import RebalanceAgain, Recovery, ServiceStopped
from faust.types import TP
from mode import Service

from heartbeat_stream.complaints import Complaints
from heartbeat_stream.streaming.engine import Engine, Superseded

__all__ = ["BatchRecovery", "EagerTableManager"]

_RETRY_S = 1.0


class BatchRecovery(Recovery):
    """Faust's recovery service with another way to read changelogs."""

    @property
    def engine(self) -> Engine:
        engine: Engine = self.app.engine  # type: ignore[attr-defined]
        return engine

    @Service.task
    async def _restart_recovery(self) -> None:
        with self.app.liveness.running("recovery"):  # type: ignore[attr-defined]
            await self._recover_forever()

    async def _recover_forever(self) -> None:
        complaints = Complaints(self.log.logger)
        while not self.should_stop:
            if await self.wait_for_stopped(self.signal_recovery_start.wait()):
                break
            self.signal_recovery_start.clear()
            generation = self._generation_id
            self._set_recovery_started()
            try:
                await self._recover(complaints)
                await self._complete(generation, complaints)
            except (RebalanceAgain, IllegalStateError, Superseded):
                continue
            except ServiceStopped:
                break
            except Exception as exc:  # whatever it is: without this nothing is recovered any more
                self.app.fail(exc)  # type: ignore[attr-defined]
                break

    async def _recover(self, complaints: Complaints) -> None:
        partitions: dict[str, set[int]] = {}
        for tp in self.active_tps:
            partitions.setdefault(tp.topic, set()).add(tp.partition)
        superseded = False

        async def recover() -> None:
            # Raised at the end of the worker, it would be told as what nobody has looked at.
            nonlocal superseded
            try:
                await self.engine.recover(partitions)
            except Superseded:
                superseded = True

        while True:
            try:
                await self._wait(recover())
                if superseded:
                    raise Superseded
                return
            except KafkaError as exc:
                complaints.warning("cannot read the changelogs (%r): trying again", exc)
                await self._wait(asyncio.sleep(_RETRY_S))

    async def _complete(self, generation: int, complaints: Complaints) -> None:
        while True:
            why: object = "no answer"
            try:
                await self._wait(self.on_recovery_completed(generation))
                return
            except IllegalStateError:
                raise  # another rebalance has begun
            except KafkaError as exc:
                why = exc
            except ServiceStopped:
                # mode says so, too, when the time is over within which the seek must be done.
                if self.should_stop:
                    raise
            complaints.warning("cannot go to the committed offsets (%s): trying again", why)
            await self._wait(asyncio.sleep(_RETRY_S))

    def flush_buffers(self) -> None:
        """Nothing is buffered: no changelog record ever comes through the worker's consumer."""

    def add_active(self, table: Any, tp: TP) -> None:
        # Faust would ask the table for its persisted offset here, before it is open.
        self.active_tps.add(tp)
        self.actives_for_table[table].add(tp)
        self.tp_to_table[tp] = table


class EagerTableManager(TableManager):
    """A table manager that starts at once, and recovers from changelogs by batches."""

    @property
    def recovery(self) -> BatchRecovery:
        if self._recovery is None:
            self._recovery = BatchRecovery(self.app, self, beacon=self.beacon, loop=self.loop)
        return cast(BatchRecovery, self._recovery)

    async def on_start(self) -> None:
        await self._update_channels()
        await self.recovery.start()
